#pragma once

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// The model whose vocabulary and tokenizer count in a generate job: the student that the answers are for, or, where
/// the spec has none, the teacher. `pointer` is where the spec names it.
struct NamedModel {
    std::string folder;
    const char* pointer;
};
[[nodiscard]] NamedModel model_of_answers(const JobSpec& spec);

/// Its size. The student may be of a kind that we cannot train. Without a model, what a tokenizer knows. Reads files;
/// an error names the field.
Result<std::uint32_t> vocabulary_of_answers(const JobSpec& spec);

}  // namespace distilld

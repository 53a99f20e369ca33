#pragma once

#include <cstdint>
#include <string>

#include "api/job_spec.hpp"
#include "base/error.hpp"

namespace distilld {

/// The model that sets the vocabulary and tokenizer of a generate job: the student that the answers are for or, if the
/// spec has none, the teacher. `pointer` is its place in the spec.
struct NamedModel {
    std::string folder;
    const char* pointer;
};
[[nodiscard]] NamedModel model_of_answers(const JobSpec& spec);

/// Its vocabulary size. The student may be of a kind that we cannot train. Without a model, the tokenizer's size. Reads
/// files; an error names the field.
Result<std::uint32_t> vocabulary_of_answers(const JobSpec& spec);

}  // namespace distilld

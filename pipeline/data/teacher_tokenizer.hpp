#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/tokenizer_signs.hpp"
#include "pipeline/core/vocabulary/token_alignment.hpp"
#include "pipeline/data/tokenizer_choice.hpp"

namespace distilld {

/// The tokenizer of a teacher that does not have the student's.
struct TeacherTokenizer {
    TokenizerChoice choice;  ///< with a tokenizer
    std::shared_ptr<const TokenAlignment> alignment;
    std::string hash{};  ///< of its file, for stores
    TokenizerSigns signs{};
};

/// Reads the tokenizer in `folder` and relates it to the student's. Errors begin with /teacher/tokenizer. Reads files;
/// any thread.
Result<std::shared_ptr<TeacherTokenizer>> load_teacher_tokenizer(const std::filesystem::path& folder,
                                                                 const TokenizerChoice& student);

}  // namespace distilld

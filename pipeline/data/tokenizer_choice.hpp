#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/special_tokens.hpp"
#include "pipeline/data/tokenizer/tokenizer.hpp"

namespace distilld {

/// What decides which tokenizer reads a job's text.
struct TokenizerWish {
    std::filesystem::path named;        ///< student.tokenizer; empty = not given
    std::filesystem::path model;        ///< student.model; empty = none
    std::uint32_t vocabulary_size = 0;  ///< the student's
};

/// The tokenizer of a job, or why there is none.
struct TokenizerChoice {
    std::unique_ptr<Tokenizer> tokenizer;  ///< null: text is refused
    std::string refusal;                   ///< why, when it is null
    std::filesystem::path folder;          ///< its files lie there; empty: it is built in, or there is none
    /// What the tokenizer says of its special tokens; nothing when nobody knows.
    std::optional<SpecialTokens> special;
    /// These are the student's own files: ids of its config.json that agree about the end of a text stand.
    bool of_the_model = false;

    /// One line for people. `read_text`: the data had text.
    [[nodiscard]] std::string description(bool read_text) const;
};

/// The tokenizer of the folder that is named; else that of the model's folder; else, for a student with the byte
/// tokenizer's vocabulary (or a little padding above it, see kMaxByteVocabulary), the byte tokenizer. A tokenizer that
/// is not understood is no error before some text asks for it. Errors begin with /student/tokenizer. Reads files; any
/// thread.
Result<TokenizerChoice> choose_tokenizer(const TokenizerWish& wish);

/// Vocabularies from that of the byte tokenizer to this count as its own: 257 padded to a multiple of 128.
inline constexpr std::uint32_t kMaxByteVocabulary = 384;

}  // namespace distilld

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

/// Inputs of the choice of a job's tokenizer.
struct TokenizerWish {
    std::filesystem::path named;        ///< student.tokenizer; empty = not given
    std::filesystem::path model;        ///< student.model; empty = none
    std::uint32_t vocabulary_size = 0;  ///< the student's
};

/// The tokenizer of a job, or why there is none.
struct TokenizerChoice {
    std::unique_ptr<Tokenizer> tokenizer;  ///< null: text is refused
    std::string refusal;                   ///< why it is null
    std::filesystem::path folder;          ///< folder of its files; empty: built in, or none
    /// The tokenizer's special tokens; nullopt: unknown.
    std::optional<SpecialTokens> special;
    /// The tokenizer is the student's own: its config.json keeps its special ids if both agree about the end of a text.
    bool of_the_model = false;

    /// One line for users. `read_text`: the data had text.
    [[nodiscard]] std::string description(bool read_text) const;
};

/// Chooses the tokenizer of the named folder; else of the model's folder; else, for a student with the byte tokenizer's
/// vocabulary (or a little padding above it, see kMaxByteVocabulary), the byte tokenizer. An unsupported tokenizer is
/// an error only if the data has text. Errors begin with /student/tokenizer. Reads files; any thread.
Result<TokenizerChoice> choose_tokenizer(const TokenizerWish& wish);

/// Vocabularies from the byte tokenizer's size up to this are taken for its own: 257 padded to a multiple of 128.
inline constexpr std::uint32_t kMaxByteVocabulary = 384;

}  // namespace distilld

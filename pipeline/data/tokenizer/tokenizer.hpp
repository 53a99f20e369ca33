#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// Text to ids and back. Immutable, any thread.
class Tokenizer {
  public:
    virtual ~Tokenizer() = default;
    /// Both throw ErrorException (invalid_input) where the tokenizer's own rules take too many steps on a text or make
    /// too much of it.
    /// With what the tokenizer puts around a text (a beginning-of-text token, say). A byte that is no UTF-8 is read as
    /// U+FFFD, by the byte tokenizer as itself.
    [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
    /// The text of the ids, special tokens spelled out; an id outside the vocabulary becomes U+FFFD. Bytes that form no
    /// UTF-8 (a cut sequence) are kept as they are.
    [[nodiscard]] virtual std::string decode(const std::vector<std::int32_t>& ids) const = 0;
    /// One above the largest id.
    [[nodiscard]] virtual std::uint32_t vocabulary_size() const = 0;
    /// Id that ends a document, when the tokenizer has one.
    [[nodiscard]] virtual std::optional<std::int32_t> end_of_text() const = 0;
    /// What it is, in a few words: "byte tokenizer", "byte-level BPE".
    [[nodiscard]] virtual std::string kind() const = 0;
};

/// One id a byte (ids 0–255), then <|endoftext|> = 256: needs no training and no file. The characters
/// "<|endoftext|>" inside a text become the one id 256, because that is what Hugging Face tokenizers make of them.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// Writes tokenizer.json, tokenizer_config.json and special_tokens_map.json of the byte tokenizer, such that Hugging
/// Face `tokenizers` and `transformers` load them and give the same ids. The folder is created when absent; each file
/// is written under a temporary name and renamed. Returns their paths.
Result<std::vector<std::filesystem::path>> write_byte_tokenizer(const std::filesystem::path& folder);

/// The tokenizer of a model folder's tokenizer.json, see make_json_tokenizer(). A folder without one gives nullptr.
/// Errors name the file.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::filesystem::path& folder);

}  // namespace distilld

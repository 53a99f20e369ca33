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

/// Converts text to ids and back. Immutable, any thread.
class Tokenizer {
  public:
    virtual ~Tokenizer() = default;
    /// The ids of a text, with those that the tokenizer puts around it (for example a beginning-of-text token). A byte
    /// that is not UTF-8 is read as U+FFFD; the byte tokenizer keeps it. encode() and decode() throw ErrorException
    /// (invalid_input) if the tokenizer's rules take too many steps on a text or make it too long.
    [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
    /// The same without those around it, for a text that holds them already.
    [[nodiscard]] virtual std::vector<std::int32_t> encode_bare(std::string_view text) const { return encode(text); }
    /// The text of the ids, with special tokens spelled out; an id outside the vocabulary becomes U+FFFD. Bytes that
    /// are not UTF-8 (a cut sequence) are kept.
    [[nodiscard]] virtual std::string decode(const std::vector<std::int32_t>& ids) const = 0;
    /// Whether the id is a token that structures a text and is not part of it ("special" in tokenizer.json).
    [[nodiscard]] virtual bool is_special(std::int32_t id) const = 0;
    /// The bytes that a token stands for within a text, special tokens as they are written; empty for an id without a
    /// token. The tokens of a text together are the text after its normalization, perhaps with a space before it.
    [[nodiscard]] virtual std::string token_bytes(std::int32_t id) const = 0;
    /// One above the largest id.
    [[nodiscard]] virtual std::uint32_t vocabulary_size() const = 0;
    /// The id that ends a document, if the tokenizer has one.
    [[nodiscard]] virtual std::optional<std::int32_t> end_of_text() const = 0;
    /// A short description: "byte tokenizer", "byte-level BPE".
    [[nodiscard]] virtual std::string kind() const = 0;
};

/// One id per byte (ids 0–255), then <|endoftext|> = 256: needs no training and no file. As with Hugging Face
/// tokenizers, the characters "<|endoftext|>" inside a text become the one id 256.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// Writes tokenizer.json, tokenizer_config.json and special_tokens_map.json of the byte tokenizer, so that Hugging Face
/// `tokenizers` and `transformers` load them and give the same ids. Creates the folder if it is missing; each file is
/// written under a temporary name and renamed. Returns their paths.
Result<std::vector<std::filesystem::path>> write_byte_tokenizer(const std::filesystem::path& folder);

/// The tokenizer of a model folder's tokenizer.json, with the ids of huggingface/tokenizers: added tokens, then
/// normalizer, pre-tokenizer, a model of type BPE, post-processor, decoder. A component that is not understood is
/// refused by name. Returns nullptr for a folder without the file. Errors name the file.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::filesystem::path& folder);

}  // namespace distilld

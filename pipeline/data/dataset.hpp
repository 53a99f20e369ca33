#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"

namespace distilld {

/// A tokenized dataset in memory, cut into rows of at most `sequence_length` input positions. Immutable, any thread.
class Dataset {
  public:
    virtual ~Dataset() = default;
    [[nodiscard]] virtual std::uint64_t row_count() const = 0;
    /// Input positions of all rows together, padding not counted.
    [[nodiscard]] virtual std::uint64_t token_count() const = 0;
    /// SHA-256 (hex) over token ids, labels, row borders and sequence length: part of a checkpoint's identity.
    [[nodiscard]] virtual const std::string& hash() const = 0;
    /// The rows as one batch, padded on the right to sequence_length with id 0 and kIgnoredLabel; they are its
    /// row_ids. A row number at or above row_count() throws std::out_of_range.
    [[nodiscard]] virtual TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const = 0;
    /// Labels of a row that carry loss: what batch() counts, without making the batch.
    [[nodiscard]] virtual std::uint64_t target_tokens(std::uint64_t row) const = 0;
    /// A tokenizer read some of it.
    [[nodiscard]] virtual bool has_text() const { return false; }
    /// Documents of it name a teacher, which was not asked for.
    [[nodiscard]] virtual bool names_teachers() const { return false; }
};

/// Text to ids and back. Immutable, any thread.
class Tokenizer {
  public:
    virtual ~Tokenizer() = default;
    [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
    /// Bytes of the ids, end_of_text spelled out; an id outside the vocabulary becomes U+FFFD. Bytes that form no UTF-8
    /// (a cut sequence) are kept as they are.
    [[nodiscard]] virtual std::string decode(const std::vector<std::int32_t>& ids) const = 0;
    [[nodiscard]] virtual std::uint32_t vocabulary_size() const = 0;
    /// Id that ends a document, when the tokenizer has one.
    [[nodiscard]] virtual std::optional<std::int32_t> end_of_text() const = 0;
};

/// One id a byte (ids 0–255), then <|endoftext|> = 256: needs no training and no file. The characters
/// "<|endoftext|>" inside a text become the one id 256, because that is what Hugging Face tokenizers make of them.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// Writes tokenizer.json, tokenizer_config.json and special_tokens_map.json of the byte tokenizer, such that Hugging
/// Face `tokenizers` and `transformers` load them and give the same ids. The folder is created when absent; each file
/// is written under a temporary name and renamed.
Result<void> write_byte_tokenizer(const std::filesystem::path& folder);

/// The tokenizer of a model folder: its tokenizer.json when that is the byte tokenizer's form; anything else is refused
/// by naming the component that is not understood. A folder without tokenizer.json gives nullptr.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const std::filesystem::path& folder);

struct DatasetOptions {
    std::uint32_t sequence_length = 0;  ///< T, at least 1
    bool packing = true;  ///< join documents end to end (end_of_text between them), cut into rows of T+1 with stride T
    std::uint32_t vocabulary_size = 0;       ///< ids at or above it are refused, with file and line; 0 = no check
    std::size_t max_line_bytes = 64U << 20;  ///< bytes of the longest line that is read
    std::string no_tokenizer_reason;         ///< why `tokenizer` is null, added to the refusal of a {"text"} line
    std::vector<std::string> teachers{};     ///< of several, of which each document has one; empty: one has all
};

/// Reads JSONL (UTF-8, with or without byte order mark, LF or CRLF; empty lines are skipped):
///   {"text": "…"}            needs `tokenizer`
///   {"input_ids": […]}       with optional "labels" of the same length: labels[i] belongs to input_ids[i] as in
///                            transformers, kIgnoredLabel = no loss. Without labels every token is a target.
/// Other fields beside these are ignored, except an "attention_mask" with zeros, which is refused, and "teacher", see
/// load_mixed_dataset().
///
/// Packing joins the documents in file order. Between two of which one is a text goes end_of_text, where the tokenizer
/// has one and the first does not end with it already; ready-made ids are joined as they are. Row r holds the tokens
/// [r·T, r·T + T] as T inputs and T shifted labels.
/// Without packing each document is a row, cut to T+1 tokens, and documents shorter than two tokens are skipped. Rows
/// without any target are left out. A dataset without rows is an error. Errors name file and line.
/// Holds about 4 bytes a token (8 when some document has labels).
Result<std::unique_ptr<Dataset>> load_jsonl_dataset(const std::filesystem::path& file, const Tokenizer* tokenizer,
                                                    const DatasetOptions& options);

}  // namespace distilld

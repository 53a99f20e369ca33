#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/spec_sections.hpp"
#include "pipeline/data/tokenizer/tokenizer.hpp"

namespace distilld {

/// A tokenized dataset, split into rows of at most `sequence_length` input positions. Immutable, any thread.
class Dataset {
  public:
    virtual ~Dataset() = default;
    [[nodiscard]] virtual std::uint64_t row_count() const = 0;
    /// Input positions of all rows together, without padding.
    [[nodiscard]] virtual std::uint64_t token_count() const = 0;
    /// The same for the whole files, including positions in no row because they were left out or have no target.
    [[nodiscard]] virtual std::uint64_t tokens_read() const { return token_count(); }
    /// SHA-256 (hex) over token ids, labels, row borders and sequence length: part of a checkpoint's identity.
    [[nodiscard]] virtual const std::string& hash() const = 0;
    /// Returns the rows as one batch, padded on the right with id 0 and kIgnoredLabel: to the longest row if a row is a
    /// document, else to sequence_length. The row numbers are its row_ids. A row number at or above row_count() throws
    /// std::out_of_range.
    [[nodiscard]] virtual TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const = 0;
    /// Input positions of a row without padding. Makes no batch.
    [[nodiscard]] virtual std::uint32_t row_length(std::uint64_t row) const {
        return static_cast<std::uint32_t>(batch(0, {row}).lengths.front());
    }
    /// Labels of a row that carry loss: what batch() counts, without making the batch.
    [[nodiscard]] virtual std::uint64_t target_tokens(std::uint64_t row) const = 0;
    /// What the teacher reads in place of the documents, if they have a prompt of their own for it: one row per
    /// document, that ends with the same tokens and labels, or has the same text in the teacher's own tokens. Null: the
    /// documents themselves.
    [[nodiscard]] virtual const Dataset* teacher_documents() const { return nullptr; }
    /// The dataset that teachers and stores see: teacher_documents() if there are any, its documents if a row has
    /// several separate ones (TokenBatch::documents has their numbers in it), else this one.
    [[nodiscard]] virtual const Dataset& asked_about() const {
        return teacher_documents() != nullptr ? *teacher_documents() : *this;
    }
    /// Whether a tokenizer read some of it.
    [[nodiscard]] virtual bool has_text() const { return false; }
    /// Whether some documents name a teacher although none was expected.
    [[nodiscard]] virtual bool names_teachers() const { return false; }
};

/// Progress of reading a dataset's files.
struct ReadingProgress {
    double share = 0;               ///< of the files' bytes on the disk, 0 to 1
    std::uint64_t total_bytes = 0;  ///< of the files on the disk
    std::uint64_t tokens = 0;       ///< so far
    std::size_t threads = 1;        ///< that parse and tokenize
};

class TokenCache;
struct TeacherTokenizer;

struct DatasetOptions {
    std::uint32_t sequence_length = 0;          ///< T, at least 1
    std::uint32_t teacher_sequence_length = 0;  ///< T of teacher_documents(); 0: sequence_length
    bool packing = true;  ///< join documents end to end (end_of_text between them), cut into rows of T+1 with stride T
    Overflow overflow = Overflow::truncate;  ///< of documents above T+1 tokens, without packing; not automatic
    std::uint32_t vocabulary_size = 0;       ///< ids at or above it are refused, with file and line; 0 = no check
    std::size_t max_line_bytes = 64U << 20;  ///< maximum bytes of a line
    std::string no_tokenizer_reason;         ///< why `tokenizer` is null, added to the refusal of a {"text"} line
    std::vector<std::string> teachers{};     ///< names of several teachers, one per document; empty: a single teacher
    bool completion_only_loss = true;        ///< no loss on the prompt of a {"prompt", "completion"}
    std::string tokenizer_folder{};          ///< for the command that an error suggests; empty = unknown
    std::uint32_t threads = 1;               ///< maximum threads that parse and tokenize; does not affect the result
    /// Called every few hundred KB, on the calling thread. False stops reading with an error of kind `cancelled`.
    std::function<bool(const ReadingProgress&)> on_progress{};
    const TeacherTokenizer* teacher_tokenizer = nullptr;  ///< for all documents; null: the student's
    /// A document is a prompt alone: {"prompt": "…"} or {"input_ids": […]}, whose other fields are ignored. Its row has
    /// one target, at the prompt's last position: some token, so that the row is not left out.
    bool prompts = false;
    bool keeps_labels = false;    ///< with it: also those of positions where the teacher has none
    TokenCache* cache = nullptr;  ///< keeps tokens across starts; null: tokens are held in memory
};

/// Reads JSONL files, one after the other as if they were one (UTF-8, with or without byte order mark, LF or CRLF;
/// plain or compressed with gzip or zstd; empty lines are skipped):
///   {"text": "…"}            needs `tokenizer`
///   {"instruction": "…", "input": "…", "output": "…"}  needs `tokenizer`, see alpaca_prompt()
///   {"input_ids": […]}       with optional "labels" of the same length: labels[i] belongs to input_ids[i] as in
///                            transformers, kIgnoredLabel = no loss. Without labels every token is a target.
///   {"prompt": "…", "completion": "…"}  needs `tokenizer`, see encode_prompt_completion()
/// The last two may have a "teacher_prompt" or "teacher_input_ids", see teacher_document.hpp; then all documents
/// must. With DatasetOptions::teacher_tokenizer, documents are texts without these fields, see align_tokenizers().
/// Other fields are ignored, except an "attention_mask" with zeros, which is refused, and "teacher", see
/// load_mixed_dataset().
///
/// Packing joins the documents in file order. If one of two neighbours is a text, end_of_text is put between them,
/// unless the tokenizer has none or the first ends with it; ready-made ids are joined unchanged. Row r holds the tokens
/// [r·T, r·T + T] as T inputs and T shifted labels. Without packing each document is a row, and documents shorter than
/// two tokens are skipped. A document above T+1 tokens is cut there, or becomes several rows of T+1 with stride T and
/// the labels of the whole document, or is an error (DatasetOptions::overflow). Rows without any target are left out. A
/// dataset without rows is an error. Errors name file and line. Holds about 4 bytes per token (8 if a document has
/// labels), or with a cache maps a file of that size; the dataset is the same.
Result<std::unique_ptr<Dataset>> load_jsonl_dataset(std::span<const std::filesystem::path> files,
                                                    const Tokenizer* tokenizer, const DatasetOptions& options);

}  // namespace distilld

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/dataset.hpp"

namespace distilld {

/// One document of a dataset as tokens.
struct Document {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> labels;  ///< as many as ids, when has_labels
    bool has_labels = false;
    bool from_text = false;
    bool names_teacher = false;  ///< though DatasetOptions::teachers is empty
    std::size_t teacher = 0;     ///< which of DatasetOptions::teachers
};

/// Bytes that must be readable behind a line given to DocumentParser.
extern const std::size_t kDocumentPadding;

/// Reads one line of JSONL. Keeps its buffers from line to line. One thread.
class DocumentParser {
  public:
    virtual ~DocumentParser() = default;
    /// Fills `document`. Errors say what is wrong with the line, not where the line is; the file is for the command
    /// that turns it into one that can be read.
    virtual Result<void> parse(std::string_view line, const std::filesystem::path& file, Document& document) = 0;
};

/// `tokenizer` may be null; `options` and `tokenizer` must outlive the parser.
std::unique_ptr<DocumentParser> make_document_parser(const Tokenizer* tokenizer, const DatasetOptions& options);

}  // namespace distilld

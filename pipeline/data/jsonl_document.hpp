#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/dataset.hpp"

namespace distilld {

/// One document of a dataset as tokens.
struct Document {
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> labels;  ///< as many as ids, if has_labels
    bool has_labels = false;
    std::vector<std::int32_t> teacher_ids;     ///< what its teacher reads instead; empty: the ids
    std::vector<std::int32_t> teacher_labels;  ///< of teacher_ids; empty: those of the document, at the end
    bool from_text = false;
    bool names_teacher = false;  ///< though DatasetOptions::teachers is empty
    std::size_t teacher = 0;     ///< index into DatasetOptions::teachers
};

/// Whether one of the labels carries loss.
[[nodiscard]] inline bool has_target(std::span<const std::int32_t> labels) {
    return std::ranges::any_of(labels, [](std::int32_t label) { return label != kIgnoredLabel; });
}

/// Bytes that must be readable after a line given to DocumentParser.
extern const std::size_t kDocumentPadding;

/// Reads one line of JSONL. Reuses its buffers between lines. One thread.
class DocumentParser {
  public:
    virtual ~DocumentParser() = default;
    /// Fills `document`. Errors describe the line without its place; `file` is for the suggested command.
    virtual Result<void> parse(std::string_view line, const std::filesystem::path& file, Document& document) = 0;
};

/// `tokenizer` may be null; `options` and `tokenizer` must outlive the parser.
std::unique_ptr<DocumentParser> make_document_parser(const Tokenizer* tokenizer, const DatasetOptions& options);

}  // namespace distilld

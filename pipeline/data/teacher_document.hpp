#pragma once

#include <cstddef>
#include <cstdint>

#include "pipeline/data/jsonl_document.hpp"

namespace distilld {

/// T of Dataset::teacher_documents().
[[nodiscard]] inline std::uint32_t teacher_row_length(const DatasetOptions& options) {
    return options.teacher_sequence_length != 0 ? options.teacher_sequence_length : options.sequence_length;
}

/// Ignores the labels of tokens that `ids` and `teacher_ids` do not have in common at their ends, and of a token with
/// none before it in one of them: the teacher has no answer for them. False: no label is left, but there were some.
[[nodiscard]] bool align_with_teacher(Document& document);

/// What the teacher reads of a document that has teacher_ids and was aligned, without the last `cut` tokens: these
/// ids, with the document's labels at their end.
[[nodiscard]] Document teacher_document(const Document& document, std::size_t cut);

/// Gives `document` the ids and labels of `read`, the same text in the tokens of options.teacher_tokenizer, cut to a
/// row of the teacher's if options.overflow is truncate. Without options.keeps_labels, ignores the labels of positions
/// where the teacher has none: it must have read the same bytes, and have a label for the next token. Empties a
/// document without any such position.
void align_tokenizers(Document& document, Document read, const DatasetOptions& options);

}  // namespace distilld

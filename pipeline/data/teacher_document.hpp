#pragma once

#include <cstddef>

#include "pipeline/data/jsonl_document.hpp"

namespace distilld {

/// Ignores the labels of tokens that `ids` and `teacher_ids` do not have in common at their ends, and of a token with
/// none before it in one of them: the teacher has no answer for them. False: no label is left, but there were some.
[[nodiscard]] bool align_with_teacher(Document& document);

/// What the teacher reads of a document that has teacher_ids and was aligned, without the last `cut` tokens: these
/// ids, with the document's labels at their end.
[[nodiscard]] Document teacher_document(const Document& document, std::size_t cut);

}  // namespace distilld

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/vocabulary/token_alignment.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// Maximum share of padding in a requested batch, before rounding up to kAskedColumns.
inline constexpr double kMaxAskedPadding = 0.25;
/// Requested batches have a multiple of this many columns, or the maximum length of a row, so that answers depend
/// little on the other documents of a batch. Libraries compute the remainder after whole blocks with other kernels,
/// which changes the last bits: with libtorch 2.13 on a CPU with AVX-512, a document's answer is the same in every
/// batch with a multiple of 16 columns, and differs in most others.
inline constexpr std::uint32_t kAskedColumns = 16;

/// What the teacher reads in place of a document, as a batch of one row without padding; see
/// Dataset::teacher_documents(). Any thread.
using ReadDocument = std::function<TokenBatch(std::uint64_t document)>;

using OnAlignment = std::function<void(const AlignmentCounters&)>;

/// The batches to request for the documents of `tokens`: one document per row, with the documents' ids as row_ids.
/// Documents of shared rows (TokenBatch::documents) come longest first, similar lengths together (kMaxAskedPadding);
/// rows with one document stay together, in order. `sequence_length` is the maximum length of a row. With `read`,
/// the batches have what it returns in place of the documents. A pure
/// function of its arguments.
[[nodiscard]] std::vector<std::shared_ptr<const TokenBatch>> batches_of_documents(const TokenBatch& tokens,
                                                                                  std::uint32_t sequence_length,
                                                                                  const ReadDocument& read = {});

/// Asks `teacher` about whole documents (batches_of_documents()) and puts the answers at their places in the rows. To
/// the teacher and its store, a document is a row. The requests of a micro-batch are sent together within the
/// scheduler's limits (set_concurrency_limits(); one at a time before), which all micro-batches share. They have one
/// deadline, and the first failure ends the others. Answers about what `read` returns are aligned at the ends of
/// both documents; earlier positions of a longer document have none. With `alignment`, top-k answers are aligned where
/// both have read the same bytes, and become rows over the student's ids (MappedRows); `on_first` gets the counters of
/// the first decoded micro-batch, on a thread that decodes.
[[nodiscard]] std::unique_ptr<TeacherSource> make_document_teacher(
    std::unique_ptr<TeacherSource> teacher, std::uint32_t sequence_length, ReadDocument read = {},
    std::shared_ptr<const TokenAlignment> alignment = nullptr, OnAlignment on_first = {});

}  // namespace distilld

#pragma once

#include <memory>
#include <vector>

#include "pipeline/core/micro_batch.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// Most of the positions of a batch that is asked for, as a share, that may be padding, but for what kAskedColumns
/// adds.
inline constexpr double kMaxAskedPadding = 0.25;
/// Batches that are asked for have a multiple of so many columns, or as many as a row may have. Libraries compute what
/// is left of a row beside whole blocks by other kernels, with other last bits: measured with libtorch 2.13 on a CPU
/// with AVX-512, what a teacher says of a document is the same in every batch whose columns are a multiple of 16, and
/// another in most others. So it depends as little as can be on which documents it is asked about with.
inline constexpr std::uint32_t kAskedColumns = 16;

/// What a teacher is asked about the documents of `tokens`: batches with one document a row, their row_ids the
/// documents' ids. Of rows with several documents (TokenBatch::documents) the longest first, those of like lengths
/// together (kMaxAskedPadding); rows of one stay together, in their order. `sequence_length` is the length of the
/// longest row that there may be. A pure function of its arguments.
[[nodiscard]] std::vector<std::shared_ptr<const TokenBatch>> batches_of_documents(const TokenBatch& tokens,
                                                                                  std::uint32_t sequence_length);

/// Asks `teacher` about whole documents: see batches_of_documents(). What it says is put where they lie in the rows. To
/// the teacher, and to a store behind it, a document is a row like another, whichever row of the student it lies in.
/// The requests for a micro-batch go out together, as far as the scheduler's limits allow (set_concurrency_limits();
/// one at a time until they are known), and those of several micro-batches share them: there are never more in flight
/// than that. They have one deadline, and the first that fails ends the others.
[[nodiscard]] std::unique_ptr<TeacherSource> make_document_teacher(std::unique_ptr<TeacherSource> teacher,
                                                                   std::uint32_t sequence_length);

}  // namespace distilld

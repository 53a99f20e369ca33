#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>

#include "models/losses/distill_loss.hpp"
#include "models/network/document_groups.hpp"
#include "models/training/staging_ring.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld::models {

/// A micro-batch as the loss wants it. Rows without a label, and rows that the teacher did not give, are not among
/// `targets`.
struct TensorBatch final : StagedBatch {
    std::uint64_t number = 0;              ///< of the micro-batch, over the whole job
    torch::Tensor input_ids;               ///< [B, T] int64; [1, N] of `documents`
    DocumentGroups documents;              ///< of rows with several: the documents alone, the longest first, no padding
    torch::Tensor rows;                    ///< [n] int64: positions of input_ids that carry loss; undefined when all do
    DistillTargets targets;                ///< of these n positions
    std::uint64_t target_tokens = 0;       ///< n
    std::uint64_t step_target_tokens = 0;  ///< as MicroBatch says it, with rows that the teacher did not give
    /// Where a StagingRing copies the tensors: StagedCopies::use() comes before their first use.
    std::shared_ptr<const StagedCopies> copies{};
};

struct StagingOptions {
    std::int64_t vocabulary_size = 0;
    bool with_teacher = false;  ///< targets are required (and prepared), else they are ignored
    double temperature = 1.0;
    torch::Device device = torch::kCPU;
    torch::Tensor teacher_head{};  ///< [V, H'] on the device; undefined: hidden states are refused
    /// Of `device`, which is not the CPU: tensors are put together in its slots and copied behind the call. Null: in
    /// memory of their own and, for another device than the CPU, copied before the call returns.
    StagingRing* ring = nullptr;
};

/// Copies (the bytes may lie unaligned in a response body), checks every id and size, widens ids, tempers top-k rows.
/// Plain loops: on the staging thread a torch operation would start a second thread team. Throws ErrorException naming
/// the micro-batch: a batch whose sizes or ids are wrong is a defect of the stage before, not of the user.
std::unique_ptr<TensorBatch> stage_micro_batch(const MicroBatch& batch, const StagingOptions& options);

}  // namespace distilld::models

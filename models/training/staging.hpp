#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "models/losses/distill_loss.hpp"
#include "models/network/document_groups.hpp"
#include "models/network/gradient_order.hpp"
#include "models/training/staging_ring.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld::models {

/// A micro-batch in the form that the loss takes. `targets` has no rows without a label or without an answer.
struct TensorBatch final : StagedBatch {
    std::uint64_t number = 0;        ///< of the micro-batch, over the whole job
    std::unique_ptr<Ticket> ticket;  ///< null: gradients are added at once
    /// Of the last micro-batch that this process trains on in a step: which gradient groups have targets.
    std::vector<bool> present_in_step{};
    torch::Tensor input_ids;   ///< [B, T] int64; with `documents`, [1, N]
    DocumentGroups documents;  ///< for rows with several documents: only these, the longest first, without padding
    torch::Tensor rows;        ///< [n] int64: positions of input_ids that carry loss; undefined: all do
    DistillTargets targets;    ///< for these n positions
    std::uint64_t target_tokens = 0;       ///< n
    std::uint64_t step_target_tokens = 0;  ///< as in MicroBatch; includes rows that the teacher did not answer
    /// Where a StagingRing copies the tensors: call StagedCopies::use() before their first use.
    std::shared_ptr<const StagedCopies> copies{};
};

struct StagingOptions {
    std::int64_t vocabulary_size = 0;
    bool with_teacher = false;  ///< targets are required (and prepared); otherwise they are ignored
    double temperature = 1.0;
    torch::Device device = torch::kCPU;
    torch::Tensor teacher_head{};  ///< [V, H'] on the device; undefined: hidden states are refused
    /// The ring of `device` (not the CPU): tensors are assembled in its slots and copied asynchronously. Null: tensors
    /// have their own memory and, unless the device is the CPU, are copied before the call returns.
    StagingRing* ring = nullptr;
};

/// Copies (the bytes may lie unaligned in a response body), checks every id and size, widens ids, tempers top-k rows.
/// Plain loops: on the staging thread a torch operation would start a second thread team. Throws ErrorException naming
/// the micro-batch: wrong sizes or ids are a bug of the previous stage, not the user's fault.
std::unique_ptr<TensorBatch> stage_micro_batch(const MicroBatch& batch, const StagingOptions& options);

}  // namespace distilld::models

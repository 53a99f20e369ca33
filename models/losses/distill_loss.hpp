#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>

#include "models/losses/divergence.hpp"
#include "models/losses/loss_chunks.hpp"

namespace distilld::models {

/// Targets of n rows; every row carries loss (masked positions are already dropped). Without a teacher only `labels` is
/// set; with one, also the four top-k tensors, `teacher_logits`, or `teacher_hidden` with `teacher_head`.
struct DistillTargets {
    torch::Tensor labels;  ///< [n] int64 in [0, V)

    /// Top-k teacher, tempered and normalised by topk_targets.hpp: in each row, the k probabilities and the tail sum to
    /// 1.
    torch::Tensor topk_ids;            ///< [n, k] int64 in [0, V), distinct within a row
    torch::Tensor topk_probabilities;  ///< [n, k] f32
    torch::Tensor tail_probability;    ///< [n] f32
    torch::Tensor negative_entropy;    ///< [n] f32: Σ p·log p over the k + 1 buckets

    torch::Tensor teacher_logits;  ///< [n, V] f32, f16 or bf16: full logits at temperature 1

    torch::Tensor teacher_hidden;  ///< [n, H'] f32, f16 or bf16: input of the teacher's head
    torch::Tensor teacher_head;    ///< [V, H'] f32 or bf16 (f64 in gradient checks), the same for all rows

    [[nodiscard]] bool has_teacher() const {
        return topk_ids.defined() || teacher_logits.defined() || teacher_hidden.defined();
    }
};

struct DistillLossOptions {
    double kd_ratio = 1.0;  ///< counts as 0 without a teacher
    double temperature = 1.0;
    Divergence divergence;        ///< default: forward KL
    double gradient_scale = 1.0;  ///< gradients are those of gradient_scale × the sum of the loss
    std::int64_t chunk_rows = 0;  ///< 0 = loss_chunk_rows(V)
    bool compare_tokens = false;  ///< adds up `agreeing` and `accepted`
};

/// Sums over the rows, in nats.
struct DistillLossSums {
    double loss = 0;  ///< (1 − kd_ratio)·ce + kd_ratio·kd
    double kd = 0;    ///< T²·D(teacher, student); 0 if it has no weight
    double ce = 0;    ///< −log q(label) at temperature 1; 0 if it has no weight and is not free
    /// Rows with the same most likely token as the teacher; counted only on request and if kd has weight.
    std::uint64_t agreeing = 0;
    /// Likewise: Σ_rows Σ_v min(p_v, q_v) over the vocabulary, or over the teacher's k alone, which is at most
    /// min(p_tail, q_tail) less.
    double accepted = 0;
};

/// The same in fp64 on the device of the rows, without waiting for the device.
struct DistillLossScalars {
    torch::Tensor loss;  ///< [], like the others
    torch::Tensor kd;
    torch::Tensor ce;
    torch::Tensor agreeing;
    torch::Tensor accepted;
};

struct DistillLossGradients {
    torch::Tensor hidden;   ///< out: [n, H] in hidden's dtype
    torch::Tensor head;     ///< in and out: [V, H] f32 (f64 for f64 input), accumulated; undefined counts as zeros
    bool with_head = true;  ///< false: the head is frozen, and `head` is unchanged
    std::function<void()> before_head;  ///< called before the first addition to `head`, which it may set. May be empty
};

/// Distillation loss of the rows and its gradients, without autograd:
///
///     loss = Σ_rows (1 − r)·CE + r·T²·D(p, q),   q = softmax(z / T),   z = hidden · headᵀ
///
/// as in Hinton et al. 2015 (arXiv 1503.02531 §2; T² keeps gradients comparable across temperatures). D is
/// options.divergence (divergence.hpp). The formulas below are for forward KL.
///
/// Hidden states: teacher = teacher_hidden · teacher_headᵀ, per chunk in the head's dtype; then as full logits.
/// Full logits: p = softmax(teacher / T) over the vocabulary, dKL/dz = (q − p) / T.
/// Top-k: D over k + 1 buckets; the last one holds all other tokens (Megatron-LM's "ghost token",
/// megatron/training/distillation/cached_logits_loss.py). With q_tail the student's mass outside the k,
///
///     T·dKL/dz_v = q_v − p_v                      for the k,
///                  q_v·(1 − p_tail / q_tail)      for all others.
///
/// q_tail is summed over the other tokens, not computed as 1 − Σq, which cancels. A sum below 1e-30 of the largest
/// exponential counts as 1e-30, so log q_tail is finite.
///
/// Rows are processed in chunks (loss_chunks.hpp): only one chunk's logits exist at a time and are turned into their
/// gradient in place: on the CPU, forward KL against top-k targets and cross entropy alone row by row
/// (kernels/topk_loss.hpp), the others one block of rows at a time. In addition there are up to 80 MiB (off the CPU up
/// to five fp32 copies of the chunk) of intermediate tensors and, with hidden states, the teacher's logits of the chunk
/// in the head's dtype (tests/unit/models/losses/loss_memory_test.cpp prints them). Softmax and sums are fp32 (fp64 for
/// fp64 input) for every dtype of hidden; matrix products run in hidden's dtype.
///
/// hidden [n, H], head [V, H]: the same dtype (f32, bf16 or f64) and device. `gradients` null: the sums only.
///
/// Does not wait for the device. In libtorch's deterministic mode (Context::setDeterministicAlgorithms), any device
/// gives the same bits each time: each element is added to once, or by an operation that keeps an order.
DistillLossScalars distill_loss_scalars(const torch::Tensor& hidden, const torch::Tensor& head,
                                        const DistillTargets& targets, const DistillLossOptions& options,
                                        DistillLossGradients* gradients);

/// Makes one copy to the host and waits for it.
[[nodiscard]] DistillLossSums sums_of(const DistillLossScalars& scalars);

/// distill_loss_scalars(), with the sums read at once.
DistillLossSums distill_loss(const torch::Tensor& hidden, const torch::Tensor& head, const DistillTargets& targets,
                             const DistillLossOptions& options, DistillLossGradients* gradients);

}  // namespace distilld::models

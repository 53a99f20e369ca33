#include "models/losses/distill_loss.hpp"

#include <torch/utils.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

#include "models/kernels/accumulate.hpp"
#include "models/kernels/topk_loss.hpp"
#include "models/losses/token_comparison.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

/// Elements of a block on the CPU: intermediate tensors exist for one block at a time, 16 MiB in fp32, near the caches.
/// On other devices the block is the whole chunk, because each block costs about 55 launches.
constexpr std::int64_t kBlockElements = std::int64_t{1} << 22;

/// Elements of a slice of the head's gradient on the CPU: 4 MiB in bf16.
constexpr std::int64_t kSliceElements = std::int64_t{1} << 21;

/// Sums over rows as double scalars on the device, so that no block waits for a copy to the host.
struct ChunkSums {
    Tensor kd;
    Tensor ce;
    Tensor agreeing;  ///< undefined unless requested
    Tensor accepted;  ///< likewise
};

/// Numbers that the kernels below share for one chunk of rows.
struct Weights {
    double ce = 0;  ///< weight of CE in the loss, gradient scale included
    double kd = 0;  ///< weight of T²·KL, gradient scale included
    double temperature = 1;
    bool tempered = false;  ///< temperature is not 1: CE needs a softmax of its own
    Divergence divergence;
};

/// Floor for a mass before its log is taken, so that the log is finite.
double min_mass(torch::ScalarType type) {
    return type == torch::kDouble ? 1e-290 : 1e-30;
}

/// Cross entropy alone. `shifted` [n, V] = logits − row maximum; becomes weight × gradient of CE.
Tensor cross_entropy(Tensor& shifted, const Tensor& labels, double weight) {
    const Tensor column = labels.unsqueeze(1);
    const Tensor label_logit = shifted.gather(1, column);
    shifted.exp_();
    const Tensor total = shifted.sum(1, true);
    const Tensor ce = total.log().sub_(label_logit);
    shifted.mul_(total.reciprocal().mul_(weight));
    shifted.scatter_add_(1, column, torch::full_like(label_logit, -weight));
    return ce;
}

/// The student's side of the k + 1 buckets, each [n, 1] or [n, k], and the label's logit at temperature 1.
struct StudentBuckets {
    Tensor label_logit;
    Tensor top_logits;
    Tensor top;   ///< exponentials of top_logits
    Tensor rest;  ///< sum of the exponentials of all other tokens
    Tensor total;
    Tensor log_total;
};

/// Turns `scaled` into its exponentials, with 0 at the k.
StudentBuckets split_buckets(Tensor& scaled, const DistillTargets& rows, const Weights& weights) {
    StudentBuckets student;
    student.label_logit = weights.tempered ? Tensor() : scaled.gather(1, rows.labels.unsqueeze(1));
    student.top_logits = scaled.gather(1, rows.topk_ids);
    scaled.exp_();
    student.top = scaled.gather(1, rows.topk_ids);
    scaled.scatter_(1, rows.topk_ids, 0.0);
    student.rest = scaled.sum(1, true).clamp_min_(min_mass(scaled.scalar_type()));
    student.total = student.rest + student.top.sum(1, true);
    student.log_total = student.total.log();
    return student;
}

/// At temperature 1, adds the labels' part of CE's gradient (the rest is there) and returns CE [n, 1]; else nothing.
Tensor finish_cross_entropy(Tensor& gradient, const StudentBuckets& student, const Tensor& labels, double ce) {
    if (!student.label_logit.defined()) {
        return {};
    }
    if (ce != 0) {
        gradient.scatter_add_(1, labels.unsqueeze(1), torch::full_like(student.label_logit, -ce));
    }
    return student.log_total - student.label_logit;
}

/// Forward KL over k + 1 buckets, with kernels of its own (divergence.hpp). Turns `scaled` [n, V] = (logits − row
/// maximum) / T into the gradient of kd·T²·KL, and at temperature 1 of ce·CE too. Returns KL [n, 1] and, at temperature
/// 1, CE [n, 1].
std::pair<Tensor, Tensor> topk_forward_kl(Tensor& scaled, const DistillTargets& rows, const Weights& weights) {
    const auto type = scaled.scalar_type();
    const Tensor& ids = rows.topk_ids;
    const Tensor p = rows.topk_probabilities.to(type);
    const Tensor p_tail = rows.tail_probability.to(type).unsqueeze(1);
    const StudentBuckets student = split_buckets(scaled, rows, weights);
    const auto& [label_logit, top_logits, top, rest, total, log_total] = student;

    Tensor kl = rows.negative_entropy.to(type).unsqueeze(1) - (p * (top_logits - log_total)).sum(1, true);
    kl.sub_(p_tail * (rest.log() - log_total));

    const double kd = weights.kd * weights.temperature;
    const double ce = weights.tempered ? 0.0 : weights.ce;
    // Σp is 1 up to rounding; the exact derivative has Σp·q_v, at no extra cost.
    const Tensor mass = p.sum(1, true).add_(p_tail);
    const Tensor per_exp = mass.mul(kd).add_(ce).div_(total);
    scaled.mul_(per_exp - p_tail.mul(kd).div_(rest));
    scaled.scatter_(1, ids, top.mul(per_exp).sub_(p, kd));

    return {kl, finish_cross_entropy(scaled, student, rows.labels, ce)};
}

/// Forward KL against full logits; input and output as above.
std::pair<Tensor, Tensor> full_forward_kl(Tensor& scaled, const DistillTargets& rows, const Weights& weights) {
    const auto type = scaled.scalar_type();
    Tensor teacher = rows.teacher_logits.to(type);
    if (weights.tempered) {
        teacher = teacher / weights.temperature;
    }
    Tensor difference = torch::log_softmax(teacher, 1);
    const Tensor p = difference.exp();
    teacher.reset();

    Tensor gradient = scaled.exp();
    const Tensor total = gradient.sum(1, true);
    const Tensor log_total = total.log();
    const Tensor label = rows.labels.unsqueeze(1);
    Tensor cross;
    if (!weights.tempered) {
        cross = log_total - scaled.gather(1, label);
    }
    // A token that the teacher rules out (logit −inf) has p = 0: 0·(−1e4) is the limit 0, 0·(−inf) would be NaN.
    difference.clamp_min_(-1e4).sub_(scaled).add_(log_total);
    const Tensor kl = difference.mul_(p).sum(1, true);

    const double kd = weights.kd * weights.temperature;
    const double ce = weights.tempered ? 0.0 : weights.ce;
    gradient.mul_(total.reciprocal().mul_(kd + ce)).sub_(p, kd);
    if (ce != 0) {
        gradient.scatter_add_(1, label, torch::full_like(total, -ce));
    }
    scaled = gradient;
    return {kl, cross};
}

/// CE [n, 1] at temperature 1, where log q = scaled − log_total.
Tensor cross_of(const Tensor& scaled, const Tensor& log_total, const Tensor& labels) {
    return log_total - scaled.gather(1, labels.unsqueeze(1));
}

/// Any other divergence over k + 1 buckets; input and output as for topk_forward_kl().
std::pair<Tensor, Tensor> topk_divergence(Tensor& scaled, const DistillTargets& rows, const Weights& weights) {
    const auto type = scaled.scalar_type();
    const Tensor& ids = rows.topk_ids;
    const std::int64_t k = ids.size(1);
    Tensor log_p =
        torch::cat({rows.topk_probabilities.to(type), rows.tail_probability.to(type).unsqueeze(1)}, 1).log_();
    const StudentBuckets student = split_buckets(scaled, rows, weights);
    const auto& [label_logit, top_logits, top, rest, total, log_total] = student;
    Tensor slope = torch::cat({top_logits - log_total, rest.log() - log_total}, 1);
    const Tensor value = weights.divergence.value_and_slope(slope, log_p, torch::cat({top, rest}, 1).div_(total),
                                                            weights.divergence.parameter);

    const double kd = weights.kd * weights.temperature;
    const double ce = weights.tempered ? 0.0 : weights.ce;
    const Tensor per_exp = slope.mul_(kd).add_(ce).div_(total);
    scaled.mul_(per_exp.slice(1, k, k + 1));
    scaled.scatter_(1, ids, top * per_exp.slice(1, 0, k));

    return {value, finish_cross_entropy(scaled, student, rows.labels, ce)};
}

/// The same against full logits.
std::pair<Tensor, Tensor> full_divergence(Tensor& scaled, const DistillTargets& rows, const Weights& weights) {
    Tensor log_p;
    {
        Tensor teacher = rows.teacher_logits.to(scaled.scalar_type());
        if (weights.tempered) {
            teacher = teacher / weights.temperature;
        }
        log_p = torch::log_softmax(teacher, 1);
    }
    Tensor q = scaled.exp();
    const Tensor total = q.sum(1, true);
    const Tensor log_total = total.log();
    Tensor cross;
    if (!weights.tempered) {
        cross = cross_of(scaled, log_total, rows.labels);
    }
    q.div_(total);
    scaled.sub_(log_total);
    const Tensor value = weights.divergence.value_and_slope(scaled, log_p, q, weights.divergence.parameter);

    const double kd = weights.kd * weights.temperature;
    const double ce = weights.tempered ? 0.0 : weights.ce;
    scaled.mul_(kd).add_(ce).mul_(q);
    if (ce != 0) {
        scaled.scatter_add_(1, rows.labels.unsqueeze(1), torch::full_like(total, -ce));
    }
    return {value, cross};
}

/// Input and output as for topk_forward_kl().
std::pair<Tensor, Tensor> divergence(Tensor& scaled, const DistillTargets& rows, const Weights& weights) {
    const bool topk = rows.topk_ids.defined();
    if (weights.divergence.is_forward_kl()) {
        return topk ? topk_forward_kl(scaled, rows, weights) : full_forward_kl(scaled, rows, weights);
    }
    return topk ? topk_divergence(scaled, rows, weights) : full_divergence(scaled, rows, weights);
}

/// Turns `work`, logits − row maximum [n, V] of a block of rows in fp32 (fp64), into the gradient of the weighted loss
/// with respect to the logits.
ChunkSums block_to_gradient(Tensor& work, const DistillTargets& rows, const Weights& weights) {
    ChunkSums sums;
    if (weights.kd == 0) {
        sums.ce = cross_entropy(work, rows.labels, weights.ce).sum(torch::kDouble);
        return sums;
    }
    Tensor ce_gradient;
    if (weights.tempered) {
        if (weights.ce != 0) {
            ce_gradient = work.clone();
            sums.ce = cross_entropy(ce_gradient, rows.labels, weights.ce).sum(torch::kDouble);
        }
        work.div_(weights.temperature);
    }
    auto [kl, cross] = divergence(work, rows, weights);
    sums.kd = kl.sum(torch::kDouble).mul_(weights.temperature * weights.temperature);
    if (cross.defined()) {
        sums.ce = cross.sum(torch::kDouble);
    }
    if (ce_gradient.defined()) {
        work.add_(ce_gradient);
    }
    return sums;
}

DistillTargets slice_rows(const DistillTargets& all, std::int64_t begin, std::int64_t end) {
    const auto cut = [&](const Tensor& tensor) { return tensor.defined() ? tensor.slice(0, begin, end) : Tensor(); };
    return DistillTargets{cut(all.labels),           cut(all.topk_ids),         cut(all.topk_probabilities),
                          cut(all.tail_probability), cut(all.negative_entropy), cut(all.teacher_logits),
                          cut(all.teacher_hidden),   all.teacher_head};
}

/// The rows of one chunk, with logits in place of hidden states if kd has weight. If the head covers fewer tokens than
/// the student's `vocabulary`, the others get no probability.
DistillTargets chunk_rows(const DistillTargets& all, std::int64_t begin, std::int64_t end, const Weights& weights,
                          std::int64_t vocabulary) {
    DistillTargets rows = slice_rows(all, begin, end);
    if (rows.teacher_hidden.defined() && weights.kd != 0) {
        rows.teacher_logits = torch::mm(rows.teacher_hidden.to(rows.teacher_head.scalar_type()), rows.teacher_head.t());
        if (const std::int64_t missing = vocabulary - rows.teacher_logits.size(1); missing > 0) {
            rows.teacher_logits =
                torch::constant_pad_nd(rows.teacher_logits, {0, missing}, -std::numeric_limits<double>::infinity());
        }
    }
    return rows;
}

void add(Tensor& total, const Tensor& more) {
    if (more.defined()) {
        total.add_(more);
    }
}

/// Whether a kernel of one pass computes this loss.
bool has_kernel(const Tensor& logits, const DistillTargets& rows, const Weights& weights) {
    return logits.is_cpu() && (weights.kd == 0 || (rows.topk_ids.defined() && weights.divergence.is_forward_kl()));
}

void rows_to_gradient_in_one_pass(Tensor& logits, const DistillTargets& rows, const Weights& weights,
                                  ChunkSums& totals) {
    const auto type = logits.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
    kernels::LossTargets targets;
    targets.labels = rows.labels.contiguous();
    if (weights.kd != 0) {
        targets.ids = rows.topk_ids.contiguous();
        targets.probabilities = rows.topk_probabilities.to(type).contiguous();
        targets.tail_probability = rows.tail_probability.to(type).contiguous();
        targets.negative_entropy = rows.negative_entropy.to(type).contiguous();
    }
    const kernels::LossValues values =
        kernels::topk_loss(logits, targets, {weights.ce, weights.kd, weights.temperature});
    totals.kd.add_(values.kl.sum(), weights.temperature * weights.temperature);
    if (values.ce.defined()) {
        totals.ce.add_(values.ce.sum());
    }
}

/// Turns `logits` [n, V] of a chunk into the gradient with respect to them, in place and in their dtype. The formulas'
/// other tensors exist for one block of rows at a time.
void rows_to_gradient(Tensor& logits, const DistillTargets& targets, const Weights& weights, ChunkSums& totals) {
    if (has_kernel(logits, targets, weights)) {
        rows_to_gradient_in_one_pass(logits, targets, weights, totals);
        return;
    }
    const auto type = logits.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
    const std::int64_t step =
        logits.is_cpu() ? std::max<std::int64_t>(1, kBlockElements / logits.size(1)) : logits.size(0);
    for (std::int64_t begin = 0; begin < logits.size(0); begin += step) {
        const std::int64_t end = std::min(begin + step, logits.size(0));
        Tensor block = logits.slice(0, begin, end);
        const Tensor maximum = block.amax(1, true).to(type);
        Tensor work = block.scalar_type() == type ? block.sub_(maximum) : torch::sub(block, maximum);
        const ChunkSums sums = block_to_gradient(work, slice_rows(targets, begin, end), weights);
        if (!work.is_alias_of(block)) {
            block.copy_(work);
        }
        add(totals.kd, sums.kd);
        add(totals.ce, sums.ce);
    }
}

/// total += gradientᵀ · hidden. Accumulates in total's dtype if hidden has it, else rounds once per chunk. On the CPU,
/// the rounded product exists for one slice of the vocabulary at a time, near the caches.
void add_head_gradient(Tensor& total, const Tensor& gradient, const Tensor& hidden, torch::ScalarType type) {
    if (hidden.scalar_type() == type) {
        if (total.defined()) {
            total.addmm_(gradient.t(), hidden);
        } else {
            total = torch::mm(gradient.t(), hidden);
        }
        return;
    }
    const std::int64_t vocabulary = gradient.size(1);
    const bool adds = total.defined();
    if (!adds) {
        total = torch::empty({vocabulary, hidden.size(1)}, hidden.options().dtype(type));
    }
    const std::int64_t step = total.is_cpu() ? std::max<std::int64_t>(1, kSliceElements / hidden.size(1)) : vocabulary;
    for (std::int64_t begin = 0; begin < vocabulary; begin += step) {
        const std::int64_t end = std::min(begin + step, vocabulary);
        Tensor slice = total.slice(0, begin, end);
        const Tensor product = torch::mm(gradient.slice(1, begin, end).t(), hidden);
        if (adds) {
            kernels::accumulate(slice, product, type);
        } else {
            slice.copy_(product);
        }
    }
}

}  // namespace

DistillLossScalars distill_loss_scalars(const Tensor& hidden, const Tensor& head, const DistillTargets& targets,
                                        const DistillLossOptions& options, DistillLossGradients* gradients) {
    const torch::NoGradGuard no_grad;
    const Tensor x = hidden.detach();
    const Tensor w = head.detach();
    TORCH_CHECK(x.dim() == 2 && w.dim() == 2 && x.size(1) == w.size(1) && targets.labels.size(0) == x.size(0),
                "distill_loss: hidden ", x.sizes(), ", head ", w.sizes(), ", labels ", targets.labels.sizes());

    const double kd_ratio = targets.has_teacher() ? options.kd_ratio : 0.0;
    Weights weights;
    weights.ce = (1.0 - kd_ratio) * options.gradient_scale;
    weights.kd = kd_ratio * options.gradient_scale;
    weights.temperature = options.temperature;
    weights.tempered = options.temperature != 1.0;
    weights.divergence = options.divergence;

    const auto sum_type = x.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
    const std::int64_t count = x.size(0);
    const std::int64_t chunk = options.chunk_rows > 0 ? options.chunk_rows : loss_chunk_rows(w.size(0), w.is_cpu());
    const auto scalar = torch::TensorOptions().dtype(torch::kDouble).device(x.device());
    ChunkSums totals{torch::zeros({}, scalar), torch::zeros({}, scalar), torch::zeros({}, scalar),
                     torch::zeros({}, scalar)};
    const bool compares = options.compare_tokens && weights.kd != 0;
    if (gradients != nullptr) {
        gradients->hidden = count <= chunk ? Tensor() : torch::empty_like(x);
    }
    for (std::int64_t begin = 0; begin < count; begin += chunk) {
        const std::int64_t end = std::min(begin + chunk, count);
        const Tensor rows = x.slice(0, begin, end);
        Tensor gradient = torch::mm(rows, w.t());  // the logits, at first
        const DistillTargets chunk_targets = chunk_rows(targets, begin, end, weights, w.size(0));
        if (compares) {
            const TokenComparison compared = compare_tokens(gradient, chunk_targets, weights.temperature);
            add(totals.agreeing, compared.agreeing);
            add(totals.accepted, compared.accepted);
        }
        rows_to_gradient(gradient, chunk_targets, weights, totals);
        if (gradients == nullptr) {
            continue;
        }
        if (count <= chunk) {
            gradients->hidden = torch::mm(gradient, w);
        } else {
            Tensor out = gradients->hidden.slice(0, begin, end);
            torch::mm_out(out, gradient, w);
        }
        if (gradients->with_head) {
            if (begin == 0 && gradients->before_head) {
                gradients->before_head();
            }
            add_head_gradient(gradients->head, gradient, rows, sum_type);
        }
    }
    if (gradients != nullptr && !gradients->hidden.defined()) {
        gradients->hidden = torch::zeros_like(x);
    }
    const Tensor loss = totals.ce.mul(1.0 - kd_ratio).add_(totals.kd.mul(kd_ratio));
    return {loss, totals.kd, totals.ce, totals.agreeing, totals.accepted};
}

DistillLossSums sums_of(const DistillLossScalars& scalars) {
    const torch::NoGradGuard no_grad;
    const Tensor read =
        torch::stack({scalars.loss, scalars.kd, scalars.ce, scalars.agreeing, scalars.accepted}).to(torch::kCPU);
    const std::span values(static_cast<const double*>(read.const_data_ptr()), 5);
    return {values[0], values[1], values[2], static_cast<std::uint64_t>(values[3]), values[4]};
}

DistillLossSums distill_loss(const Tensor& hidden, const Tensor& head, const DistillTargets& targets,
                             const DistillLossOptions& options, DistillLossGradients* gradients) {
    return sums_of(distill_loss_scalars(hidden, head, targets, options, gradients));
}

}  // namespace distilld::models

// distilld-bench loss: what the distillation loss and its gradients take, and the staging of its targets.
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "bench/live_bytes.hpp"
#include "bench/median.hpp"
#include "bench/scenario.hpp"
#include "bench/seconds_of.hpp"
#include "models/losses/distill_loss.hpp"
#include "models/training/staging.hpp"
#include "server/worker/machine/compute_threads.hpp"

namespace distilld::bench {
namespace {

using torch::Tensor;

models::DistillTargets random_targets(const LossOptions& options) {
    const std::int64_t rows = options.rows;
    const std::int64_t vocabulary = options.vocabulary;
    const std::int64_t top_k = options.top_k;
    models::DistillTargets targets;
    targets.labels = torch::randint(0, vocabulary, {rows}, torch::kLong);
    if (top_k == 0) {
        targets.teacher_logits = torch::randn({rows, vocabulary}).to(torch::kHalf);
        return targets;
    }
    const Tensor p = torch::softmax(2 * torch::randn({rows, top_k + 1}), 1);
    // Other ids in each row, all different within it.
    const Tensor first = torch::randint(0, vocabulary, {rows, 1}, torch::kLong);
    const std::int64_t step = std::max<std::int64_t>(1, vocabulary / top_k);
    targets.topk_ids = (first + torch::arange(top_k) * step).remainder(vocabulary);
    targets.topk_probabilities = p.slice(1, 0, top_k).contiguous();
    targets.tail_probability = p.select(1, top_k).contiguous();
    targets.negative_entropy = (p * p.log()).sum(1);
    return targets;
}

ArrayView view(ElementType type, const Tensor& tensor) {
    return {type, std::as_bytes(std::span(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()))};
}

/// The targets as a teacher sends them: ids as i32, values as f16, tails as f32.
MicroBatch as_sent(const models::DistillTargets& targets, std::uint32_t rows) {
    auto tokens = std::make_shared<TokenBatch>();
    tokens->rows = 1;
    tokens->columns = rows;
    tokens->input_ids.assign(rows, 0);
    tokens->labels.assign(rows, 0);
    TeacherTargets sent;
    sent.rows = 1;
    sent.columns = rows;
    auto arrays = std::make_shared<std::vector<Tensor>>();
    if (targets.topk_ids.defined()) {
        *arrays = {targets.topk_ids.to(torch::kInt), targets.topk_probabilities.log().to(torch::kHalf),
                   targets.tail_probability.log()};
        sent.ids = view(ElementType::i32, arrays->at(0));
        sent.values = view(ElementType::f16, arrays->at(1));
        sent.tail = view(ElementType::f32, arrays->at(2));
    } else {
        *arrays = {targets.teacher_logits};
        sent.kind = TeacherTargets::Kind::logits;
        sent.values = view(ElementType::f16, arrays->front());
    }
    sent.width = static_cast<std::uint32_t>(sent.values.bytes.size() / element_size(ElementType::f16) / rows);
    sent.owner = std::move(arrays);
    return {std::move(tokens), std::move(sent), rows};
}

struct LossSpeed {
    double seconds = 0;            ///< of one call with gradients, the median
    double staging_seconds = 0;    ///< of the targets, the median
    double gemm_flops = 0;         ///< floating point operations a second of the chunk's logits alone, measured in turn
    double share_of_gemm = 0;      ///< of a call, the part that its three matrix products take at that rate
    std::uint64_t peak_bytes = 0;  ///< most tensors of libtorch that a call held beside its inputs, on the CPU
    std::int64_t chunk_rows = 0;
};

/// Measures distill_loss() on the CPU, with libtorch's threads as they are.
LossSpeed measure_loss(const LossOptions& options) {
    const std::int64_t rows = options.rows;
    const std::int64_t hidden = options.hidden;
    const std::int64_t vocabulary = options.vocabulary;
    const torch::NoGradGuard no_grad;
    torch::manual_seed(1);
    const auto type = options.dtype == "bf16" ? torch::kBFloat16 : torch::kFloat;
    const Tensor states = torch::randn({rows, hidden}).to(type);
    const Tensor head = (0.02 * torch::randn({vocabulary, hidden})).to(type);
    const models::DistillTargets targets = random_targets(options);
    models::DistillLossOptions loss;
    loss.divergence = models::divergence_of_beta(options.beta);
    loss.chunk_rows = options.chunk_rows;
    LossSpeed speed;
    speed.chunk_rows =
        std::min(rows, loss.chunk_rows > 0 ? loss.chunk_rows : models::loss_chunk_rows(vocabulary, true));

    const auto call = [&] {
        models::DistillLossGradients gradients;
        models::distill_loss(states, head, targets, loss, &gradients);
    };
    speed.peak_bytes = static_cast<std::uint64_t>(peak_bytes_of(call));
    const MicroBatch sent = as_sent(targets, options.rows);
    const models::StagingOptions staging{.vocabulary_size = vocabulary, .with_teacher = true};
    const Tensor chunk = states.slice(0, 0, speed.chunk_rows);
    std::vector<double> calls;
    std::vector<double> products;
    std::vector<double> stagings;
    for (std::uint32_t turn = 0; turn < std::max(options.repeat, 1U); ++turn) {
        products.push_back(seconds_of([&] { torch::mm(chunk, head.t()); }));
        calls.push_back(seconds_of(call));
        stagings.push_back(seconds_of([&] { models::stage_micro_batch(sent, staging); }));
    }
    const double row_flops = 2.0 * static_cast<double>(hidden) * static_cast<double>(vocabulary);
    speed.seconds = median(calls);
    speed.staging_seconds = median(stagings);
    speed.gemm_flops = row_flops * static_cast<double>(speed.chunk_rows) / median(products);
    // Logits, and the gradients of hidden states and head.
    speed.share_of_gemm = 3.0 * row_flops * static_cast<double>(rows) / speed.gemm_flops / speed.seconds;
    return speed;
}

}  // namespace

boost::json::object run_loss(const LossOptions& options) {
    if (options.top_k > options.vocabulary) {
        throw UsageError("--top-k: is above --vocabulary");
    }
    const std::uint32_t threads = set_compute_threads(options.threads);
    const LossSpeed speed = measure_loss(options);
    return {{"rows", options.rows},
            {"hidden", options.hidden},
            {"vocabulary", options.vocabulary},
            {"top_k", options.top_k},
            {"dtype", options.dtype},
            {"beta", options.beta},
            {"threads", threads},
            {"chunk_rows", speed.chunk_rows},
            {"ms", 1e3 * speed.seconds},
            {"tokens_per_second", static_cast<double>(options.rows) / speed.seconds},
            {"gemm_gflops", speed.gemm_flops / 1e9},
            {"share_of_gemm", speed.share_of_gemm},
            {"staging_ns_per_position", 1e9 * speed.staging_seconds / options.rows},
            {"peak_mebibytes", static_cast<double>(speed.peak_bytes) / (1 << 20)}};
}

}  // namespace distilld::bench

// distilld-bench loss: what the distillation loss and its gradients take.
#include <boost/json/object.hpp>

#include "bench/scenario.hpp"
#include "models/losses/loss_speed.hpp"
#include "server/worker/compute_threads.hpp"

namespace distilld::bench {

boost::json::object run_loss(const LossOptions& options) {
    if (options.top_k > options.vocabulary) {
        throw UsageError("--top-k: is above --vocabulary");
    }
    models::LossShape shape;
    shape.rows = options.rows;
    shape.hidden = options.hidden;
    shape.vocabulary = options.vocabulary;
    shape.top_k = options.top_k;
    shape.bf16 = options.dtype == "bf16";
    shape.beta = options.beta;
    shape.chunk_rows = options.chunk_rows;
    shape.repeat = options.repeat;
    const std::uint32_t threads = set_compute_threads(options.threads);
    const models::LossSpeed speed = models::measure_loss(shape);
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
            {"peak_mebibytes", static_cast<double>(speed.peak_bytes) / (1 << 20)}};
}

}  // namespace distilld::bench

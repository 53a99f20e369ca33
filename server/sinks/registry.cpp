#include "server/sinks/registry.hpp"

namespace distilld::sinks {

namespace {

using std::chrono::milliseconds;

constexpr SinkRow kRows[] = {
    {"jsonl", Takes::figures, {.max_batch = 1000, .linger = milliseconds(0)}, make_jsonl_sink},
    {"tensorboard", Takes::figures, {.max_batch = 1000, .linger = milliseconds(500)}, make_tensorboard_sink},
    {"mlflow", Takes::figures, {.max_batch = 100, .linger = milliseconds(2000)}, make_mlflow_sink},
    {"otlp", Takes::spans, {.max_batch = 500, .linger = milliseconds(2000)}, make_otlp_sink},
};

}  // namespace

std::span<const SinkRow> sink_rows() {
    return kRows;
}

}  // namespace distilld::sinks

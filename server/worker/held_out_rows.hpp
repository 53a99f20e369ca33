#pragma once

#include <boost/asio/awaitable.hpp>

#include "pipeline/graph/evaluation.hpp"
#include "server/worker/preparation.hpp"

namespace distilld {

/// Fills in `run.of_held_out` and `run.turn`: the teachers of the training, which are connected, for the held-out rows;
/// nobody without such rows, where the spec says so (/eval/ask_teacher), or where one of them cannot be asked, which is
/// said. Executor of `executors.io`.
boost::asio::awaitable<void> ask_about_held_out(PreparedRun& run, GraphExecutors executors, EmitEvent emit);

/// The held-out rows of the run as micro-batches, and whom its graph asks about them.
[[nodiscard]] EvaluationSet evaluation_set(const PreparedRun& run, std::uint32_t decode_threads);

/// The rows alone.
[[nodiscard]] EvaluationSet held_out_rows(const PreparedRun& run);

}  // namespace distilld

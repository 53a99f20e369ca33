#pragma once

#include <boost/asio/awaitable.hpp>

#include "pipeline/graph/evaluation.hpp"
#include "server/worker/preparation.hpp"

namespace distilld {

/// Fills in `run.of_held_out` and `run.turn`: the connected teachers of the training, for the held-out rows. Nobody is
/// asked if there are no such rows, if the spec says so (/eval/ask_teacher), or if a teacher cannot be asked, which is
/// reported. Executor of `executors.io`.
boost::asio::awaitable<void> ask_about_held_out(PreparedRun& run, GraphExecutors executors, EmitEvent emit);

/// The held-out rows of the run as micro-batches, and the teachers that its graph asks about them.
[[nodiscard]] EvaluationSet evaluation_set(const PreparedRun& run, std::uint32_t decode_threads);

/// Only the rows.
[[nodiscard]] EvaluationSet held_out_rows(const PreparedRun& run);

}  // namespace distilld

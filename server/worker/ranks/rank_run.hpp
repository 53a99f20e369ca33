#pragma once

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/batch_plan.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "server/worker/preparation.hpp"
#include "server/worker/teacher/job_teachers.hpp"

/// A run that is one of several ranks.
namespace distilld {

/// Whether ranks can train the job together; the error names the spec's field. Null: there is one rank.
Result<void> check_ranks(const RankExchange* ranks, const JobSpec& spec);

/// What rank 0 tells the others when it is prepared: the run's identity and the checkpoint to resume from.
[[nodiscard]] std::string words_to_ranks(const PreparedRun& run);
/// Fills the decisions of rank 0 into the run of another rank, and returns the identity that it must have.
Result<std::string> read_words_to_ranks(const std::string& words, PreparedRun& run);

/// The part of each step that this rank trains on; nullopt: all of it.
[[nodiscard]] std::optional<StepSlice> own_slice(const PreparedRun& run);

/// Limits of the job's teachers, divided over the ranks. Each rank keeps the number of requests to a model that is in
/// its process or in that of another rank.
void share_teachers(const PreparedRun& run, std::vector<GraphTeacher>& teachers);

/// Finds the ranks on this host (PreparedRun::host_ranks): those that reach each other on the loopback interface. Every
/// rank calls it. Blocks.
void find_host_ranks(PreparedRun& run);

/// Makes the first rank of this host load the teachers that its ranks share (PreparedRun::host_teachers), and the
/// others ask it (PreparedRun::teacher_places).
[[nodiscard]] Result<void> share_on_host(PreparedRun& run, TeachersWish& wish, const GraphExecutors& executors);

/// Begins to answer the other ranks, with the teachers that this one has loaded. Executor of `executors.io`.
[[nodiscard]] Result<void> serve_host(PreparedRun& run);

/// Tells the ranks of each host where its first rank answers for its teachers (PreparedRun::teacher_places). Every rank
/// calls it, first ranks once they answer. Blocks.
[[nodiscard]] Result<void> exchange_teacher_places(PreparedRun& run);

/// Answers other ranks no more. May be called again.
boost::asio::awaitable<void> end_host_teachers(PreparedRun& run);

}  // namespace distilld

#pragma once

#include <optional>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/batch_plan.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "server/worker/preparation.hpp"

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

/// Limits of the job's teachers, divided over the ranks.
void share_teachers(const RankExchange* ranks, std::vector<GraphTeacher>& teachers);

}  // namespace distilld

#include "tests/simulation/cluster_folder.hpp"

#include "base/random.hpp"

namespace distilld::test {
namespace {

/// After which a later attempt replaces an earlier one that may be saving its last step.
constexpr Millis kReplacedAfter = 150'000;

}  // namespace

std::uint64_t next_weights(std::uint64_t weights, std::uint32_t step) {
    return SplitMix64(weights * 31 + step).next();
}

std::uint64_t weights_after(std::uint32_t steps) {
    std::uint64_t weights = 1;
    for (std::uint32_t step = 1; step <= steps; ++step) {
        weights = next_weights(weights, step);
    }
    return weights;
}

JobFolder::Take JobFolder::take(std::uint64_t attempt, const FolderHolderPtr& holder, Millis since) {
    const auto lives = lives_.lock();
    if (attempt < attempt_) {
        return Take::refused;
    }
    const bool stands_here = lives && lives->stands() && lives->node == holder->node;
    if (lives && lives != holder && !stands_here && stage_.now() < since + kReplacedAfter) {
        return Take::waits;
    }
    if (lives && attempt == attempt_) {
        stage_.violate(job_ + ": two workers of attempt " + std::to_string(attempt));
    }
    attempt_ = attempt;
    holder_ = holder.get();
    lives_ = holder;
    return Take::taken;
}

bool JobFolder::commit(const FolderHolderPtr& holder, std::uint64_t attempt, std::uint32_t step, std::uint64_t weights,
                       bool exported) {
    if (holder_ != holder.get() && !stage_.has(ClusterOptions::Defect::no_fence)) {
        stage_.tell(job_ + ": attempt " + std::to_string(attempt) + " was replaced and commits nothing");
        return false;
    }
    if (attempt < last_commit_) {
        stage_.violate(job_ + ": attempt " + std::to_string(attempt) + " commits after attempt " +
                       std::to_string(last_commit_));
    }
    if (weights != weights_after(step)) {
        stage_.violate(job_ + ": attempt " + std::to_string(attempt) + " commits other weights of step " +
                       std::to_string(step));
    }
    stage_.tell(job_ + ": attempt " + std::to_string(attempt) + " commits step " + std::to_string(step) +
                (exported ? " and its export" : ""));
    last_commit_ = attempt;
    newest_ = {step, weights};
    if (exported) {
        exported_ = attempt;
    }
    return true;
}

}  // namespace distilld::test

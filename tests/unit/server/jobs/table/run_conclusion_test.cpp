#include "server/jobs/table/run_conclusion.hpp"

#include <gtest/gtest.h>

namespace distilld {
namespace {

using api::JobState;

Conclusion conclusion_of(JobWish wish) {
    WorkerOutcome outcome;
    outcome.kind = WorkerOutcome::Kind::cancelled_outside;
    outcome.reason = {"worker_cancelled", "Slurm job 7 was cancelled"};
    return conclude({.intent = {wish, wish == JobWish::run ? JobPhase::running : JobPhase::stopping}}, outcome).value();
}

TEST(RunConclusion, TakesItsOwnKillForNobodysWhileAPauseIsUnderWay) {
    // The service that ended the worker in time may have been killed before the worker's end was known.
    const Conclusion paused = conclusion_of(JobWish::pause);
    EXPECT_EQ(paused.state, JobState::paused);
    EXPECT_EQ(paused.reason->message, "Slurm job 7 was cancelled; the newest checkpoint is whole");
    EXPECT_EQ(conclusion_of(JobWish::resume).state, JobState::queued);
    EXPECT_EQ(conclusion_of(JobWish::cancel).state, JobState::cancelled);
    EXPECT_EQ(conclusion_of(JobWish::run).state, JobState::cancelled);
}

}  // namespace
}  // namespace distilld

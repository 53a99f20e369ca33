#include "server/supervisor/ranked_worker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "tests/unit/server/supervisor/fake_worker_run.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using ::testing::UnorderedElementsAre;

/// The warnings of two ranks that say which limit they were given: before the run begins, or when it has.
std::vector<std::string> told_limits(bool before) {
    asio::io_context context;
    const auto make = [&context] { return make_worker_process(context.get_executor(), test::fake("limit")); };
    const auto process = make_ranked_worker(context.get_executor(), make);
    JobSpec spec;
    spec.training.ranks = 2;
    WorkerStart start;
    start.spec_json = "{}";
    start.spec = std::make_shared<const JobSpec>(spec);
    test::Outcome outcome;
    const auto handler = [&](const WorkerEvent& event) { outcome.events.push_back(event); };
    const auto done = [&](const std::exception_ptr& failure, Result<WorkerExit> exit) {
        EXPECT_FALSE(failure);
        outcome.exit = std::move(exit);
    };
    if (before) {
        process->send(SetLimitCommand{6});
    }
    asio::co_spawn(context, process->run(start, handler), done);
    if (!before) {
        asio::post(context, [&] { process->send(SetLimitCommand{6}); });
    }
    context.run_for(std::chrono::seconds(60));
    EXPECT_TRUE(outcome.exit);
    std::vector<std::string> told;
    for (const LogEvent& line : outcome.of<LogEvent>()) {
        told.push_back(line.message);
    }
    return told;
}

TEST(RankedWorker, TellsALimitToEachRank) {
    for (const bool before : {true, false}) {
        EXPECT_THAT(told_limits(before), UnorderedElementsAre("limit 6", "rank 1 of 2: limit 6")) << before;
    }
}

}  // namespace
}  // namespace distilld

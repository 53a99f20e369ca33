#include "server/supervisor/ranked_worker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/job_spec.hpp"
#include "tests/unit/server/supervisor/fake_worker_run.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using ::testing::UnorderedElementsAre;

/// Runs fake workers as ranks; the workers' warnings.
std::vector<std::string> warnings_of(const std::string& behaviour, const WorkerStart& start, RankLayout layout,
                                     std::vector<std::uint32_t>& made) {
    asio::io_context context;
    const auto make = [&](std::uint32_t rank) {
        made.push_back(rank);
        return make_worker_process(context.get_executor(), test::fake(behaviour));
    };
    const auto process = make_ranked_worker(context.get_executor(), make, std::move(layout));
    test::Outcome outcome;
    const auto handler = [&](const WorkerEvent& event) { outcome.events.push_back(event); };
    const auto done = [&](const std::exception_ptr&, Result<WorkerExit> exit) { outcome.exit = std::move(exit); };
    asio::co_spawn(context, process->run(start, handler), done);
    context.run_for(std::chrono::seconds(60));
    EXPECT_TRUE(outcome.exit);
    std::vector<std::string> told;
    for (const LogEvent& line : outcome.of<LogEvent>()) {
        told.push_back(line.message);
    }
    return told;
}

TEST(RankedWorker, RanksOfEachMachineAreCountedThere) {
    WorkerStart start;
    start.spec_json = "{}";
    start.spec = std::make_shared<const JobSpec>();
    start.attempt = 3;
    std::vector<std::uint32_t> made;
    EXPECT_THAT(warnings_of("place", start, {4, 2, "192.0.2.7"}, made),
                UnorderedElementsAre("192.0.2.7 1, attempt 3, local 0 of 2",
                                     "rank 1 of 4: 192.0.2.7 1, attempt 3, local 1 of 2",
                                     "rank 2 of 4: 192.0.2.7 1, attempt 3, local 0 of 2",
                                     "rank 3 of 4: 192.0.2.7 1, attempt 3, local 1 of 2"));
    EXPECT_THAT(made, ::testing::ElementsAre(0, 1, 2, 3));
}

/// The warnings of two ranks that say which limit they were given: before the run begins, or when it has.
std::vector<std::string> told_limits(bool before) {
    asio::io_context context;
    const auto make = [&context](std::uint32_t) {
        return make_worker_process(context.get_executor(), test::fake("limit"));
    };
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

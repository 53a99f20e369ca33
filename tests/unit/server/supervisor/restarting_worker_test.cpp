#include "server/supervisor/restarting_worker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <csignal>
#include <exception>
#include <optional>
#include <vector>

#include "tests/unit/server/supervisor/fake_worker_run.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using test::Outcome;
using ::testing::HasSubstr;

constexpr RestartLimits kQuick{3, std::chrono::milliseconds(1), std::chrono::milliseconds(30)};

using Order = std::function<void(WorkerProcess&, asio::cancellation_signal&)>;

Outcome run(const std::string& behaviour, RestartLimits limits = kQuick, const Order& between = {},
            bool at_once = false) {
    asio::io_context context;
    asio::cancellation_signal cancel;
    const auto make = [&context, behaviour] {
        WorkerProcessOptions options = test::fake(behaviour);
        if (behaviour == "missing") {
            options.program.replace_filename("nobody");
        }
        return make_worker_process(context.get_executor(), options);
    };
    const auto process = make_restarting_worker(context.get_executor(), make, limits);
    Outcome outcome;
    WorkerStart start;
    start.spec_json = "{}";
    const auto handler = [&](const WorkerEvent& event) {
        outcome.events.push_back(event);
        if (!between || !std::holds_alternative<LogEvent>(event)) {
            return;
        }
        if (at_once) {
            between(*process, cancel);
        } else {
            asio::post(context, [&] { between(*process, cancel); });
        }
    };
    const auto done = [&](const std::exception_ptr& failure, Result<WorkerExit> exit) {
        EXPECT_FALSE(failure);
        outcome.exit = std::move(exit);
    };
    asio::co_spawn(context, process->run(start, handler), asio::bind_cancellation_slot(cancel.slot(), done));
    context.run_for(std::chrono::seconds(60));
    EXPECT_TRUE(outcome.exit);
    return outcome;
}

TEST(RestartingWorker, GoesOnFromTheNewestCheckpoint) {
    const auto outcome = run("crash_unless_resumed");
    EXPECT_EQ(outcome.exit->value().exit_code, 0);
    ASSERT_EQ(outcome.of<LogEvent>().size(), 1U);
    EXPECT_EQ(outcome.of<LogEvent>()[0].level, "warn");
    EXPECT_THAT(outcome.of<LogEvent>()[0].message, HasSubstr("signal 11"));
    EXPECT_THAT(outcome.of<LogEvent>()[0].message, HasSubstr("; restart 1 of 3 from the newest checkpoint in 1 ms"));
    EXPECT_EQ(outcome.of<FailedEvent>().size(), 0U);
    EXPECT_TRUE(std::holds_alternative<FinishedEvent>(outcome.events.back()));
}

TEST(RestartingWorker, GivesUpWhereNothingComesOfIt) {
    const auto outcome = run("crash");
    EXPECT_EQ(outcome.exit->value().exit_code, 128 + SIGSEGV);
    EXPECT_EQ(outcome.of<LogEvent>().size(), 3U);
    ASSERT_EQ(outcome.of<FailedEvent>().size(), 1U);
    EXPECT_THAT(outcome.of<FailedEvent>()[0].message, HasSubstr("about to crash; it died 4 times in a row"));
}

TEST(RestartingWorker, PassesOnWhatIsNoDeath) {
    EXPECT_EQ(run("fail").of<FailedEvent>().at(0).kind, "teacher");
    EXPECT_EQ(run("exit_early").of<FailedEvent>().at(0).kind, kWorkerNotStarted);
    EXPECT_FALSE(run("missing").exit->has_value());
}

TEST(RestartingWorker, HalvesTheMicroBatchWhenMemoryRunsOut) {
    const auto outcome = run("hog");
    EXPECT_EQ(outcome.exit->value().exit_code, 0);
    ASSERT_EQ(outcome.of<LogEvent>().size(), 2U);
    EXPECT_EQ(outcome.of<LogEvent>()[0].level, "warn");
    EXPECT_EQ(outcome.of<LogEvent>()[1].message,
              "no room; out-of-memory restart 2 of 3 from the newest checkpoint in 1 ms, with batch_size 2 and "
              "micro_batches 4 in place of batch_size 4 and micro_batches 2");
    EXPECT_EQ(outcome.of<FailedEvent>().size(), 0U);
    EXPECT_EQ(outcome.of<StartedEvent>().back().batch_size, 2U);
    EXPECT_EQ(outcome.of<StartedEvent>().back().first_step, 1U) << "it went on from the newest checkpoint";
}

TEST(RestartingWorker, FailsWhereSmallerMicroBatchesWereOfNoUse) {
    auto limits = kQuick;
    limits.max_oom_restarts = 1;
    const auto outcome = run("hog", limits);
    EXPECT_EQ(outcome.of<LogEvent>().size(), 1U);
    EXPECT_EQ(outcome.of<FailedEvent>().at(0).kind, "out_of_memory");
    EXPECT_THAT(outcome.of<FailedEvent>().at(0).message, HasSubstr("no room; it was started again 1 times"));
}

// The pause is longer than the test's patience, so it has to be cut short.
constexpr RestartLimits kSlow{3, std::chrono::hours(1), std::chrono::hours(1)};

TEST(RestartingWorker, IsCancelledBetweenTwoWorkers) {
    const Order cancel = [](auto&, auto& signal) { signal.emit(asio::cancellation_type::terminal); };
    for (const bool at_once : {true, false}) {
        const auto outcome = run("checkpoint_and_crash", kSlow, cancel, at_once);
        ASSERT_TRUE(std::holds_alternative<CancelledEvent>(outcome.events.back()));
        EXPECT_EQ(outcome.of<CancelledEvent>()[0].step, 1U);
        EXPECT_EQ(outcome.of<CancelledEvent>()[0].checkpoint, "checkpoints/1");
    }
}

TEST(RestartingWorker, IsKilledBetweenTwoWorkers) {
    const Order kill = [](WorkerProcess& process, auto&) { process.kill(); };
    for (const bool at_once : {true, false}) {
        EXPECT_EQ(run("crash", kSlow, kill, at_once).of<FailedEvent>().at(0).kind, kWorkerKilled);
    }
}

}  // namespace
}  // namespace distilld

#include "server/sinks/sink_runner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <future>
#include <mutex>
#include <thread>

#include "tests/unit/server/sinks/sink_probe.hpp"

namespace distilld::sinks {
namespace {

using test::item;
using test::step;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// What a scripted sink has seen and is to do.
struct Script {
    std::function<WriteResult(std::size_t call)> answer = [](std::size_t) { return Written(); };
    std::shared_future<void> gate;  ///< waited for, blocking, in each write
    bool hangs = false;             ///< a write ends when it is cancelled only
    std::mutex mutex;
    std::vector<std::vector<std::uint64_t>> writes;  ///< steps of each call; 0 for what is no step
    std::promise<void> begun;
};

class ScriptedSink final : public Sink {
  public:
    explicit ScriptedSink(Script& script) : script_(script) {}

    boost::asio::awaitable<WriteResult> write(const std::vector<SinkItem>& items) override {
        std::size_t call = 0;
        {
            const std::lock_guard lock(script_.mutex);
            call = script_.writes.size();
            auto& seen = script_.writes.emplace_back();
            for (const SinkItem& one : items) {
                const auto* record = std::get_if<StepRecord>(&one.record);
                seen.push_back(record != nullptr ? record->step : 0);
            }
        }
        if (call == 0) {
            script_.begun.set_value();
        }
        if (script_.gate.valid()) {
            script_.gate.wait();
        }
        if (script_.hangs) {
            boost::asio::steady_timer never(co_await boost::asio::this_coro::executor,
                                            boost::asio::steady_timer::time_point::max());
            co_await never.async_wait(boost::asio::use_awaitable);
        }
        co_return script_.answer(call);
    }

  private:
    Script& script_;
};

class SinkRunnerTest : public ::testing::Test {
  protected:
    std::unique_ptr<SinkRunner> start(SinkPace pace = {}) {
        auto runner = std::make_unique<SinkRunner>("test", pace, [this](const std::string& text) {
            const std::lock_guard lock(warnings_mutex_);
            warnings_.push_back(text);
        });
        runner->start(std::make_unique<ScriptedSink>(script_));
        return runner;
    }

    Script script_;
    std::mutex warnings_mutex_;
    std::vector<std::string> warnings_;
};

TEST_F(SinkRunnerTest, WritesInOrderWhatItIsGivenUpToTheEnd) {
    const auto runner = start({.max_batch = 2, .linger = std::chrono::hours(1)});
    for (std::uint64_t n = 1; n <= 5; ++n) {
        runner->take(item(step(n)));
    }
    runner->close();
    runner->take(item(step(6)));
    runner->join();
    EXPECT_THAT(script_.writes, ElementsAre(ElementsAre(1, 2), ElementsAre(3, 4), ElementsAre(5)));
    EXPECT_EQ(runner->counts().written, 5U);
    EXPECT_EQ(runner->counts().dropped, 1U) << "what comes behind the end";
    EXPECT_THAT(warnings_, SizeIs(1));
}

TEST_F(SinkRunnerTest, AFailedWriteIsTriedAgainWithTheSameRecords) {
    script_.answer = [](std::size_t call) -> WriteResult {
        return call == 0 ? WriteResult(SinkFailure{"http://x: HTTP 503"}) : WriteResult(Written());
    };
    const auto runner = start();
    runner->take(item(step(1)));
    script_.begun.get_future().wait();
    runner->close();
    runner->join();
    EXPECT_THAT(script_.writes, ElementsAre(ElementsAre(1), ElementsAre(1)));
    EXPECT_EQ(runner->counts().written, 1U);
    EXPECT_EQ(runner->counts().dropped, 0U);
    EXPECT_THAT(warnings_, ElementsAre("sink test: http://x: HTTP 503; trying again"));
}

TEST_F(SinkRunnerTest, WhatIsRefusedForGoodIsCountedAndTheNextIsTried) {
    script_.answer = [](std::size_t call) -> WriteResult {
        return call == 0 ? WriteResult(SinkFailure{"http://x: HTTP 400", true}) : WriteResult(Written{1, "one is bad"});
    };
    const auto runner = start({.max_batch = 2, .linger = std::chrono::hours(1)});
    for (std::uint64_t n = 1; n <= 4; ++n) {
        runner->take(item(step(n)));
    }
    runner->close();
    runner->join();
    EXPECT_EQ(runner->counts().written, 1U);
    EXPECT_EQ(runner->counts().dropped, 3U);
    EXPECT_THAT(warnings_, ElementsAre("sink test: http://x: HTTP 400 (2 records lost so far)",
                                       "sink test: 3 records of this run were lost; last: refused 1 records: one is "
                                       "bad"));
}

TEST_F(SinkRunnerTest, AFullQueueDropsAndNobodyWaitsForIt) {
    std::promise<void> gate;
    script_.gate = gate.get_future().share();
    const auto runner = start({.max_batch = 1});
    runner->take(item(step(1)));
    script_.begun.get_future().wait();  // the thread is held up with the first
    for (std::uint64_t n = 0; n < kMaxQueuedRecords + 7; ++n) {
        runner->take(item(step(2 + n)));
    }
    runner->take(item(test::ended(EndRecord::Status::finished, 9)));
    EXPECT_EQ(runner->counts().dropped, 7U);
    runner->close();
    gate.set_value();
    runner->join();
    EXPECT_EQ(runner->counts().written, 1 + kMaxQueuedRecords + 1) << "the end is taken whatever the queue holds";
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("is slower than the records arrive (7 records lost so far)")));
}

TEST_F(SinkRunnerTest, ASinkThatHangsIsCancelledAndWhatItHeldIsCounted) {
    script_.hangs = true;
    const auto runner = start();
    runner->take(item(step(1)));
    script_.begun.get_future().wait();
    runner->take(item(step(2)));
    runner->close();
    runner->join();
    EXPECT_EQ(runner->counts().written, 0U);
    EXPECT_EQ(runner->counts().dropped, 2U);
    EXPECT_THAT(warnings_, ElementsAre("sink test: 2 records of this run were lost"));
}

TEST_F(SinkRunnerTest, WhatACheckpointCoversIsWrittenBeforeIt) {
    const auto runner = start({.max_batch = 100, .linger = std::chrono::hours(1)});
    runner->take(item(step(1)));
    runner->take(item(step(2)));
    EXPECT_TRUE(runner->settle(std::chrono::hours(1)));
    EXPECT_EQ(runner->counts().written, 2U);
    EXPECT_TRUE(runner->settle(std::chrono::hours(1))) << "nothing is left to be waited for";
}

TEST_F(SinkRunnerTest, ASinkThatFailsIsNotWaitedForUntilItWrites) {
    script_.answer = [](std::size_t call) -> WriteResult {
        return call == 0 ? WriteResult(SinkFailure{"refused"}) : WriteResult(Written());
    };
    const auto runner = start();
    runner->take(item(step(1)));
    EXPECT_FALSE(runner->settle(std::chrono::hours(1)));
    EXPECT_FALSE(runner->settle(std::chrono::hours(1)));
    while (runner->counts().written == 0) {
        std::this_thread::yield();
    }
    runner->take(item(step(2)));
    EXPECT_TRUE(runner->settle(std::chrono::hours(1)));
}

TEST_F(SinkRunnerTest, ASinkThatHangsIsWaitedForOnce) {
    script_.hangs = true;
    const auto runner = start();
    runner->take(item(step(1)));
    EXPECT_FALSE(runner->settle(std::chrono::milliseconds(1)));
    EXPECT_FALSE(runner->settle(std::chrono::hours(1)));
}

TEST_F(SinkRunnerTest, NothingLostNothingSaid) {
    const auto runner = start();
    runner->take(item(step(1)));
    runner->close();
    runner->join();
    EXPECT_THAT(warnings_, IsEmpty());
}

TEST(RetryPauses, GrowToABoundAndObeyTheServer) {
    using std::chrono::milliseconds;
    RetryPauses pauses;
    EXPECT_EQ(pauses.next(std::nullopt), milliseconds(500));
    EXPECT_EQ(pauses.next(std::nullopt), milliseconds(1000));
    EXPECT_EQ(pauses.next(milliseconds(7000)), milliseconds(7000));
    EXPECT_EQ(pauses.next(milliseconds(1)), milliseconds(4000));
    EXPECT_EQ(pauses.next(std::chrono::hours(9)), kMaxRetryAfter);
    for (int n = 0; n < 9; ++n) {
        static_cast<void>(pauses.next(std::nullopt));
    }
    EXPECT_EQ(pauses.next(std::nullopt), kMaxRetryPause);
}

}  // namespace
}  // namespace distilld::sinks

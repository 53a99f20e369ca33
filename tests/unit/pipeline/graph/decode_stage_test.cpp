#include "pipeline/graph/decode_stage.hpp"

#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/async/abort.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

/// Bytes whose decoding is `work`.
EncodedAnswer bytes_for(std::function<void()> work) {
    class Calls final : public EncodedAnswer::Decoder {
      public:
        explicit Calls(std::function<void()> the_work) : work_(std::move(the_work)) {}
        FetchResult<TeacherTargets> decode() override {
            work_();
            return TeacherTargets();
        }

      private:
        std::function<void()> work_;
    };
    return {std::make_unique<Calls>(std::move(work)), 10};
}

class DecodeStageTest : public ::testing::Test {
  protected:
    void decode(DecodeStage& stage, std::uint64_t number, std::function<void()> work,
                asio::cancellation_slot slot = {}) {
        auto ended = [this, number](const std::exception_ptr& thrown, const FetchResult<TeacherTargets>& targets) {
            EXPECT_TRUE(thrown || targets);
            (thrown ? aborted_ : ended_).push_back(number);
        };
        asio::co_spawn(io_, stage.decode(number, bytes_for(std::move(work))),
                       asio::bind_cancellation_slot(slot, std::move(ended)));
    }
    std::function<void()> noting(std::uint64_t number) {
        return [this, number] { decoded_.push_back(number); };
    }

    asio::io_context io_{1};
    asio::thread_pool threads_{1};
    std::vector<std::uint64_t> decoded_;  // written on the one decode thread
    std::vector<std::uint64_t> ended_;
    std::vector<std::uint64_t> aborted_;
};

TEST_F(DecodeStageTest, TheEarliestMicroBatchIsNextAndOnlyOneIsDecodedAtATime) {
    DecodeStage stage(io_.get_executor(), threads_.get_executor(), 1, nullptr);
    std::latch others_wait(1);
    decode(stage, 5, [&] {
        others_wait.wait();
        decoded_.push_back(5);
    });
    for (const std::uint64_t number : {9U, 3U, 7U, 3U}) {
        decode(stage, number, noting(number));
    }
    io_.poll();  // all have begun, and 5 has the thread
    EXPECT_TRUE(ended_.empty());
    others_wait.count_down();
    io_.run();
    threads_.join();
    EXPECT_EQ(decoded_, (std::vector<std::uint64_t>{5, 3, 3, 7, 9}));
    EXPECT_EQ(ended_, decoded_);
}

TEST_F(DecodeStageTest, AsManyAreDecodedAtATimeAsThereAreThreads) {
    asio::thread_pool two(2);
    DecodeStage stage(io_.get_executor(), two.get_executor(), 2, nullptr);
    std::latch together(2);  // nobody gets past it alone
    std::latch others_wait(1);
    for (const std::uint64_t number : {5U, 6U}) {
        decode(stage, number, [&] {
            together.arrive_and_wait();
            others_wait.wait();
        });
    }
    for (const std::uint64_t number : {8U, 7U}) {
        decode(stage, number, [] {});
    }
    while (!together.try_wait()) {
        io_.poll();
    }
    EXPECT_EQ(stage.waiting(), 2U);
    EXPECT_TRUE(ended_.empty());
    others_wait.count_down();
    io_.run();
    two.join();
    EXPECT_EQ(ended_.size(), 4U);
}

TEST_F(DecodeStageTest, WhatIsCancelledBeforeItsTurnIsNotDecodedAndHoldsNobodyUp) {
    DecodeStage stage(io_.get_executor(), threads_.get_executor(), 1, nullptr);
    std::latch others_wait(1);
    asio::cancellation_signal unwanted;
    decode(stage, 5, [&] { others_wait.wait(); });
    decode(stage, 6, noting(6), unwanted.slot());
    decode(stage, 7, noting(7));
    io_.poll();
    unwanted.emit(asio::cancellation_type::terminal);
    others_wait.count_down();
    io_.run();
    threads_.join();
    EXPECT_EQ(aborted_, std::vector<std::uint64_t>{6});
    EXPECT_EQ(decoded_, std::vector<std::uint64_t>{7});
    EXPECT_EQ(ended_, (std::vector<std::uint64_t>{5, 7}));
}

TEST_F(DecodeStageTest, ItsTimeIsSpentWaitingForBytesAtWorkOrWaitingToHandOn) {
    DecodeStage stage(io_.get_executor(), threads_.get_executor(), 1, nullptr);
    EXPECT_EQ(stage.times().stage, "decode");
    EXPECT_GT(stage.times().wait_input_seconds, 0);
    EXPECT_EQ(stage.times().busy_seconds, 0);
    decode(stage, 0, noting(0));
    io_.run();
    const StageTimes decoded = stage.times();
    EXPECT_GT(decoded.busy_seconds, 0);
    EXPECT_EQ(decoded.wait_output_seconds, 0);
    stage.keep(0, TeacherTargets());
    EXPECT_GT(stage.times().wait_output_seconds, 0);
    EXPECT_TRUE(stage.take(0));
    const double waited = stage.times().wait_output_seconds;
    EXPECT_EQ(stage.times().wait_output_seconds, waited) << "nothing is left to hand on";
    threads_.join();
}

}  // namespace
}  // namespace distilld

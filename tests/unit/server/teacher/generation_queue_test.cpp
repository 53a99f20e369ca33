#include "server/teacher/generation_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <thread>

#include "tests/unit/server/teacher/fake_generator.hpp"

namespace distilld::teacher {
namespace {

namespace asio = boost::asio;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

models::GenerationRequest asked(std::int32_t first, std::uint32_t tokens) {
    return {.prompt = {first}, .max_tokens = tokens};
}

class GenerationQueueTest : public testing::Test {
  protected:
    GenerationQueueTest() { make({}); }
    ~GenerationQueueTest() override { end(); }

    void make(GenerationQueueOptions options) {
        end();
        queue_.emplace(io_.get_executor(), compute_.get_executor(), options, metrics_);
        queue_->set_generator(generator_);
        ended_ = false;
        asio::co_spawn(io_, queue_->run(), [this](const std::exception_ptr& failure) {
            EXPECT_FALSE(failure);
            ended_ = true;
        });
    }
    void end() {
        if (queue_) {
            queue_->stop();
            pump_until([this] { return ended_; });
            queue_.reset();
        }
    }
    template <class Done>
    void pump_until(Done done) {
        while (!done()) {
            io_.restart();
            io_.run_one();
        }
    }
    static asio::awaitable<void> take(GenerationQueue::Answers& answers, std::vector<std::vector<std::int32_t>>& ids) {
        while (!answers.over()) {
            for (const GenerationNews& news : co_await answers.next()) {
                ids[news.sequence].push_back(news.step.token->id);
            }
        }
    }
    /// The ids of each of the sequences, until all have ended.
    std::vector<std::vector<std::int32_t>> read(GenerationQueue::Answers& answers, std::size_t sequences) {
        std::vector<std::vector<std::int32_t>> ids(sequences);
        bool over = false;
        asio::co_spawn(io_, take(answers, ids), [&over](const std::exception_ptr& failure) {
            EXPECT_FALSE(failure);
            over = true;
        });
        pump_until([&over] { return over; });
        return ids;
    }

    FakeGenerator generator_;
    TeacherMetrics metrics_;
    asio::io_context io_;
    asio::thread_pool compute_{1};
    std::optional<GenerationQueue> queue_;
    bool ended_ = true;
};

TEST_F(GenerationQueueTest, SequencesOfARequestComeWithTheirPlaces) {
    const auto answers = queue_->submit({asked(1, 3), asked(4, 2), asked(9, 1)});
    EXPECT_THAT(read(*answers, 3), ElementsAre(ElementsAre(2, 3, 4), ElementsAre(5, 6), ElementsAre(0)));
    EXPECT_FALSE(answers->failure());
    EXPECT_THAT(metrics_.text(), HasSubstr("distilld_teacher_server_generated_tokens_total 6\n"));
    EXPECT_THAT(metrics_.text(), HasSubstr("distilld_teacher_server_prompt_tokens_total 3\n"));
    EXPECT_THAT(metrics_.text(), HasSubstr("distilld_teacher_server_sequences_running 0\n"));
}

TEST_F(GenerationQueueTest, WhatNobodyReadsEnds) {
    auto left = queue_->submit({asked(1, 1'000'000), asked(2, 1'000'000)});
    auto waiting = queue_->submit({asked(3, 2)});
    pump_until([this] { return generator_.count() == 2; });
    left.reset();
    EXPECT_THAT(read(*waiting, 1), ElementsAre(ElementsAre(4, 5)));
    EXPECT_EQ(generator_.count(), 0U);
}

TEST_F(GenerationQueueTest, ASequenceIsEndedAlone) {
    const auto answers = queue_->submit({asked(1, 1'000'000), asked(2, 3)});
    answers->end(0);
    EXPECT_THAT(read(*answers, 2), ElementsAre(IsEmpty(), ElementsAre(3, 4, 5)));
}

TEST_F(GenerationQueueTest, SoManyMayWait) {
    make({.max_waiting = 3});
    const auto first = queue_->submit({asked(1, 1), asked(1, 1)});
    EXPECT_EQ(queue_->submit({asked(1, 1), asked(1, 1)}), nullptr);
    auto second = queue_->submit({asked(1, 1)});
    EXPECT_NE(second, nullptr);
    EXPECT_EQ(queue_->submit({asked(1, 1)}), nullptr);
    second.reset();
    EXPECT_NE(queue_->submit({asked(1, 1)}), nullptr) << "the one that was given up has left its place";
}

TEST_F(GenerationQueueTest, AFailureOfTheModelEndsWhatIsUnderWay) {
    const auto bad = queue_->submit({asked(7, 3)});
    const auto beside = queue_->submit({asked(1, 1000)});
    const auto later = queue_->submit({asked(2, 2)});
    EXPECT_THAT(read(*later, 1), ElementsAre(ElementsAre(3, 4)));
    ASSERT_TRUE(bad->failure());
    EXPECT_THAT(bad->failure()->message, HasSubstr("seven"));
    EXPECT_FALSE(bad->failure()->busy);
    EXPECT_TRUE(beside->failure());
    EXPECT_EQ(generator_.count(), 0U);
}

TEST_F(GenerationQueueTest, WhatCannotBeginInTimeFails) {
    make({.timeout = std::chrono::nanoseconds(1)});
    const auto answers = queue_->submit({asked(1, 1)});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    read(*answers, 1);
    ASSERT_TRUE(answers->failure());
    EXPECT_TRUE(answers->failure()->busy);
}

TEST_F(GenerationQueueTest, AStopFailsWhatWaitsAndWhatRuns) {
    const auto running = queue_->submit({asked(1, 1'000'000), asked(1, 1'000'000)});
    const auto waiting = queue_->submit({asked(3, 2)});
    pump_until([this] { return generator_.count() == 2; });
    queue_->stop();
    read(*running, 2);
    read(*waiting, 1);
    EXPECT_TRUE(running->failure()->busy);
    EXPECT_TRUE(waiting->failure()->busy);
    EXPECT_EQ(queue_->submit({asked(1, 1)}), nullptr);
}

}  // namespace
}  // namespace distilld::teacher

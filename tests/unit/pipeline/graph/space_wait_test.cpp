#include "pipeline/graph/space_wait.hpp"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <optional>
#include <stdexcept>
#include <variant>
#include <vector>

namespace distilld {
namespace {

using namespace std::chrono_literals;

class SpaceWaitTest : public ::testing::Test {
  protected:
    /// `fulls` attempts find the disk full, then `result`.
    std::optional<Result<std::string>> write(std::chrono::milliseconds pause, int fulls, Result<std::string> result) {
        SpaceWait space(
            io_.get_executor(),
            [this, &space](const WorkerEvent& event) {
                events_.push_back(std::get<WaitingEvent>(event));
                if (gives_up_) {
                    space.give_up();
                }
            },
            pause);
        std::function<Result<std::string>()> attempt = [this, fulls, result]() -> Result<std::string> {
            ++attempts_;
            return attempts_ <= fulls ? Error{ErrorKind::disk_full, "/out: full"} : result;
        };
        std::optional<Result<std::string>> done;
        auto keep = [&done](const std::exception_ptr& thrown, Result<std::string> written) {
            if (!thrown) {
                done = std::move(written);
            }
        };
        boost::asio::co_spawn(io_, space.perform(disk_.get_executor(), attempt), std::move(keep));
        io_.run();
        disk_.join();
        EXPECT_FALSE(space.waiting());
        return done;
    }

    boost::asio::io_context io_{1};
    boost::asio::thread_pool disk_{1};
    std::vector<WaitingEvent> events_;
    int attempts_ = 0;
    bool gives_up_ = false;
};

TEST_F(SpaceWaitTest, GoesOnWhenThereIsSpace) {
    const auto done = write(1ms, 3, std::string("step-4"));
    ASSERT_TRUE(done && done->has_value());
    EXPECT_EQ(**done, "step-4");
    EXPECT_EQ(attempts_, 4);
    ASSERT_EQ(events_.size(), 2U) << "one at its beginning, one at its end";
    EXPECT_EQ(events_[0].code, "disk_full");
    EXPECT_TRUE(events_[0].message.starts_with("/out: full; the run waits"));
    EXPECT_GT(events_[0].since, 1.6e9);
    EXPECT_EQ(events_[1].code, "");
    EXPECT_TRUE(events_[1].message.starts_with("the disk has space again, after "));
}

TEST_F(SpaceWaitTest, OtherFailuresAreNotWaitedOut) {
    const auto done = write(SpaceWait::kPause, 0, io_error("/out: input/output error"));
    ASSERT_TRUE(done && done->has_error());
    EXPECT_EQ(done->error().kind, ErrorKind::io);
    EXPECT_EQ(attempts_, 1);
    EXPECT_TRUE(events_.empty());
}

TEST_F(SpaceWaitTest, GivingUpEndsTheWaitAtOnce) {
    gives_up_ = true;
    const auto done = write(std::chrono::hours(1), 2, std::string("never"));
    ASSERT_TRUE(done && done->has_error());
    EXPECT_EQ(done->error().kind, ErrorKind::disk_full);
    EXPECT_EQ(attempts_, 1);
    ASSERT_EQ(events_.size(), 2U);
    EXPECT_EQ(events_[1].code + events_[1].message, "");
}

}  // namespace
}  // namespace distilld

#include "pipeline/teacher/request_slots.hpp"

#include <gmock/gmock.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <exception>
#include <map>
#include <utility>
#include <vector>

namespace distilld {
namespace {

namespace asio = boost::asio;
using ::testing::ElementsAre;

class RequestSlotsTest : public ::testing::Test {
  protected:
    void TearDown() override {
        for (auto& [number, signal] : cancels_) {
            signal.emit(asio::cancellation_type::terminal);
        }
        io_.poll();
    }

    /// Request `number` waits for a slot of the endpoint and keeps it.
    void ask(int number, std::size_t endpoint = 0) {
        asio::co_spawn(io_, keep(number, endpoint),
                       asio::bind_cancellation_slot(cancels_[number].slot(), [](const std::exception_ptr&) {}));
        io_.poll();
    }
    asio::awaitable<void> keep(int number, std::size_t endpoint) {
        RequestSlots::Slot slot = co_await slots_.take(endpoint);
        started_.push_back(number);
        held_.emplace(number, std::move(slot));
    }
    void cancel(int number) { cancels_.at(number).emit(asio::cancellation_type::terminal); }

    asio::io_context io_;
    asio::executor_work_guard<asio::io_context::executor_type> not_over_{io_.get_executor()};
    RequestSlots slots_{io_.get_executor(), {2, {2, 1}}};
    std::map<int, asio::cancellation_signal> cancels_;
    std::map<int, RequestSlots::Slot> held_;
    std::vector<int> started_;
};

TEST_F(RequestSlotsTest, AFreeSlotWakesOneOfThoseWhoWait) {
    constexpr int kRequests = 1000;
    for (int number = 0; number < kRequests; ++number) {
        ask(number);
    }
    EXPECT_THAT(started_, ElementsAre(0, 1));
    for (int number = 0; number < 10; ++number) {
        held_.erase(number);
        EXPECT_LE(io_.poll(), 2U) << "handlers for one slot";
        EXPECT_EQ(started_.back(), number + 2) << "in the order of their coming";
    }
}

TEST_F(RequestSlotsTest, TwoSlotsThatBecomeFreeAtOnceWakeTwo) {
    for (int number = 0; number < 5; ++number) {
        ask(number);
    }
    held_.clear();
    io_.poll();
    EXPECT_THAT(started_, ElementsAre(0, 1, 2, 3));
}

TEST_F(RequestSlotsTest, OneThatIsCancelledAfterItWasWokenPassesItsSlotOn) {
    for (int number = 0; number < 5; ++number) {
        ask(number);
    }
    cancel(2);  // while it waits
    io_.poll();
    held_.erase(0);
    cancel(3);  // whose turn it is
    io_.poll();
    EXPECT_THAT(started_, ElementsAre(0, 1, 4));
    held_.clear();
    ask(5);
    ask(6);
    ask(7);
    EXPECT_THAT(started_, ElementsAre(0, 1, 4, 5, 6)) << "no slot is lost";
}

TEST_F(RequestSlotsTest, AFullEndpointHoldsNobodyElseUp) {
    ask(0, 1);
    ask(1, 1);  // the endpoint has one slot
    ask(2, 1);
    ask(3, 0);
    ask(4, 0);
    EXPECT_THAT(started_, ElementsAre(0, 3));
    held_.erase(3);
    io_.poll();
    EXPECT_THAT(started_, ElementsAre(0, 3, 4));
    held_.erase(0);
    io_.poll();
    EXPECT_THAT(started_, ElementsAre(0, 3, 4, 1));
}

TEST_F(RequestSlotsTest, HigherLimitsWakeAsManyAsTheyAllow) {
    slots_.set_limits({0, {}});
    for (int number = 0; number < 5; ++number) {
        ask(number);
    }
    EXPECT_THAT(started_, ElementsAre(0)) << "one is always allowed";
    slots_.set_limits({3, {3}});
    io_.poll();
    EXPECT_THAT(started_, ElementsAre(0, 1, 2));
    slots_.set_limits({1, {1}});
    held_.erase(0);
    held_.erase(1);
    io_.poll();
    EXPECT_THAT(started_, ElementsAre(0, 1, 2)) << "those in flight are still as many";
    held_.clear();
    io_.poll();
    EXPECT_THAT(started_, ElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace distilld

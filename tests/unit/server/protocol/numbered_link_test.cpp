#include "server/protocol/numbered_link.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const JobAttempt kFirst{"job_1", 1};

NumberedLink service_end() {
    return {kFirst, 0, 0};
}
/// The relay learns its job from the service.
NumberedLink relay_end() {
    return {{}, 0, 0};
}

/// Gives each end all that the other sends; what comes out.
std::vector<std::string> exchange_frames(NumberedLink& one, NumberedLink& other) {
    std::vector<std::string> lines;
    bool moved = true;
    while (moved) {
        moved = false;
        for (const auto& [from, to] : {std::pair(&one, &other), std::pair(&other, &one)}) {
            while (const auto frame = from->next()) {
                moved = true;
                const auto taken = to->take(*frame);
                EXPECT_TRUE(taken.has_value()) << taken.error().message;
                if (taken && taken->line) {
                    lines.push_back(*taken->line);
                    to->confirm(to->received());
                }
            }
        }
    }
    return lines;
}

void connect(NumberedLink& one, NumberedLink& other) {
    one.connect();
    other.connect();
}

TEST(NumberedLink, CarriesLinesBothWays) {
    auto service = service_end();
    auto relay = relay_end();
    service.push("start\n");
    relay.push("hello");
    EXPECT_EQ(service.undelivered(), 1U);
    connect(service, relay);
    EXPECT_THAT(exchange_frames(service, relay), ElementsAre("hello", "start"));
    EXPECT_TRUE(service.delivered());
    EXPECT_TRUE(relay.delivered());
}

TEST(NumberedLink, SaysNothingBeforeTheGreetings) {
    auto service = service_end();
    auto relay = relay_end();
    service.push("start");
    connect(service, relay);
    EXPECT_EQ(relay.next(), std::nullopt) << "it does not know its job yet";
    const auto greeting = service.next();
    EXPECT_EQ(greeting, R"({"type":"greeting","version":1,"job":"job_1","attempt":1,"received":0})"
                        "\n");
    EXPECT_EQ(service.next(), std::nullopt);
}

/// The service tells the relay what it has stored, which may be less than what it has seen.
TEST(NumberedLink, AnEndThatStartsAgainGetsWhatItHasNotConfirmed) {
    auto service = service_end();
    auto relay = relay_end();
    connect(service, relay);
    exchange_frames(service, relay);
    relay.push("a");
    relay.push("b");
    for (int i = 0; i < 2; ++i) {
        ASSERT_TRUE(service.take(relay.next().value()).has_value());
    }
    service.confirm(1);
    ASSERT_TRUE(relay.take(service.next().value()).has_value());
    NumberedLink again(kFirst, 1, std::nullopt);
    again.push("order");
    connect(again, relay);
    EXPECT_THAT(exchange_frames(again, relay), ElementsAre("b", "order"));
}

TEST(NumberedLink, RefusesAPeerThatIsNotItsOwn) {
    auto service = service_end();
    auto relay = relay_end();
    service.push("start");
    connect(service, relay);
    EXPECT_THAT(exchange_frames(service, relay), ElementsAre("start"));
    auto second = relay_end();
    connect(service, second);
    ASSERT_TRUE(second.take(service.next().value()).has_value());
    const auto taken = service.take(second.next().value());
    ASSERT_FALSE(taken.has_value());
    EXPECT_THAT(taken.error().message, HasSubstr("it was started a second time"));
}

TEST(NumberedLink, RefusesNonsense) {
    const std::string greeting = R"({"type":"greeting","version":1,"job":"job_1","attempt":1,"received":0})";
    struct Case {
        bool greeted;
        std::string frame;
        const char* why;
    };
    const std::vector<Case> cases{
        {false, "", "not JSON"},
        {false, "\n\n", "not JSON"},
        {false, std::string(5000, 'x'), "more than 4096 bytes"},
        {false, R"({"type":"ack","number":0})", "not a greeting"},
        {false, R"({"type":"greeting","version":2,"job":"job_1","attempt":1,"received":0})", "speaks version 2"},
        {false, R"({"type":"greeting","job":"job_1","attempt":1,"received":0})", "speaks version 0"},
        {false, R"({"type":"greeting","version":1,"job":"job_2","attempt":1,"received":0})", "not for attempt 1"},
        {false, R"({"type":"greeting","version":1,"job":"job_1","attempt":2,"received":0})", "not for attempt 1"},
        {false, R"({"type":"greeting","version":1,"job":"job_1","attempt":1,"received":1})", "a second time"},
        {false, R"({"type":"greeting","version":1,"job":"job_1","attempt":1,"received":-1})", "received"},
        {true, greeting, "a second greeting"},
        {true, R"({"type":"ack","number":1})", "never sent"},
        {true, R"({"type":"ack","number":"1"})", "number"},
        {true, R"({"type":"message","number":1})", "is empty"},
        {true, R"({"type":"other"})", "unknown message type"},
        {true, R"(["message",1])", "not an object"},
        {true, "\xff\xfe", "not JSON"},
    };
    for (const auto& one : cases) {
        auto service = service_end();
        service.connect();
        if (one.greeted) {
            ASSERT_TRUE(service.take(greeting).has_value());
        }
        const auto taken = service.take(one.frame);
        ASSERT_FALSE(taken.has_value()) << one.frame;
        EXPECT_THAT(taken.error().message, HasSubstr(one.why)) << one.frame;
    }
}

/// Two ends, with frames on their way over the present connection.
class Wire {
  public:
    Wire(NumberedLink& service, NumberedLink& relay) : service_(&service), relay_(&relay) {}

    void connect(NumberedLink& service) {
        service_ = &service;
        up_.clear();
        down_.clear();
        service_->connect();
        relay_->connect();
    }
    void send() {
        if (auto frame = relay_->next()) {
            up_.push_back(*std::move(frame));
        }
        if (auto frame = service_->next()) {
            down_.push_back(*std::move(frame));
        }
    }
    /// What the service, or the relay, gets.
    std::optional<std::string> arrive(bool up) {
        auto& frames = up ? up_ : down_;
        if (frames.empty()) {
            return std::nullopt;
        }
        const auto taken = (up ? service_ : relay_)->take(frames.front());
        EXPECT_TRUE(taken.has_value()) << taken.error().message;
        frames.pop_front();
        return taken ? taken->line : std::nullopt;
    }

  private:
    NumberedLink* service_;
    NumberedLink* relay_;
    std::deque<std::string> up_;
    std::deque<std::string> down_;
};

/// The connection breaks with frames on it, and the service dies with what it has not stored.
TEST(NumberedLink, LosesAndDoublesNothing) {
    for (unsigned seed = 0; seed < 1000; ++seed) {
        std::mt19937 random(seed);
        auto service = std::make_unique<NumberedLink>(service_end());
        auto relay = relay_end();
        Wire wire(*service, relay);
        wire.connect(*service);
        std::vector<std::string> pushed;
        std::vector<std::string> seen;    // by the service that lives
        std::vector<std::string> stored;  // by all of them
        std::uint64_t stored_number = 0;
        std::vector<std::string> orders;
        std::vector<std::string> obeyed;
        for (int turn = 0; turn < 400 || !relay.delivered() || !service->delivered(); ++turn) {
            const auto what = random() % 16;
            if (what == 0 && turn < 400) {
                pushed.push_back("event " + std::to_string(pushed.size()));
                relay.push(pushed.back());
            } else if (what == 1 && turn < 400) {
                orders.push_back("order " + std::to_string(orders.size()));
                service->push(orders.back());
            } else if (what == 2) {
                wire.connect(*service);
            } else if (what == 3 && service->delivered()) {  // otherwise whoever orders must say it again
                seen = stored;
                service = std::make_unique<NumberedLink>(kFirst, stored_number, std::nullopt);
                wire.connect(*service);
            } else if (what == 4) {
                stored = seen;
                stored_number = service->received();
                service->confirm(stored_number);
            } else if (what < 9) {
                wire.send();
            } else if (auto line = wire.arrive(what % 2 == 0)) {
                if (what % 2 == 0) {
                    seen.push_back(*line);
                } else {
                    obeyed.push_back(*line);
                    relay.confirm(relay.received());
                }
            }
        }
        ASSERT_EQ(stored, pushed) << "seed " << seed;
        ASSERT_EQ(obeyed, orders) << "seed " << seed;
    }
}

}  // namespace
}  // namespace distilld

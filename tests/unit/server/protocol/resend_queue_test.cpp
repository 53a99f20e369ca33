#include "server/protocol/resend_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace distilld {
namespace {

using ::testing::ElementsAre;
using Keep = ResendQueue::Keep;

std::vector<std::string> sent_by(ResendQueue& queue) {
    std::vector<std::string> lines;
    while (const auto message = queue.next()) {
        lines.push_back(std::to_string(message->sequence) + message->line);
    }
    return lines;
}

TEST(ResendQueue, SendsAgainWhatIsNotAcknowledged) {
    ResendQueue queue;
    for (const char* line : {"a", "b", "c"}) {
        queue.push(line, Keep::always);
    }
    EXPECT_THAT(sent_by(queue), ElementsAre("1a", "2b", "3c"));
    EXPECT_THAT(sent_by(queue), ElementsAre());
    EXPECT_TRUE(queue.acknowledge(1));
    queue.reconnect();
    queue.push("d", Keep::always);
    EXPECT_THAT(sent_by(queue), ElementsAre("2b", "3c", "4d"));
    EXPECT_TRUE(queue.acknowledge(4));
    EXPECT_TRUE(queue.acknowledge(2)) << "it is older, and repeated";
    EXPECT_TRUE(queue.empty());
}

TEST(ResendQueue, RefusesAnAcknowledgementOfWhatItNeverHad) {
    ResendQueue queue(7);
    queue.push("a", Keep::always);
    EXPECT_FALSE(queue.acknowledge(9));
    EXPECT_FALSE(queue.empty());
    EXPECT_THAT(sent_by(queue), ElementsAre("8a"));
}

TEST(ResendQueue, KeepsTheNewestProgress) {
    ResendQueue queue;
    queue.push("p1", Keep::newest);
    queue.push("e", Keep::always);
    queue.push("p2", Keep::newest);
    EXPECT_THAT(sent_by(queue), ElementsAre("2e", "3p2"));
    queue.push("p3", Keep::newest);
    EXPECT_THAT(sent_by(queue), ElementsAre("4p3")) << "p2 is on its way";
    queue.reconnect();
    EXPECT_THAT(sent_by(queue), ElementsAre("2e", "4p3"));
}

TEST(ResendQueue, BoundsTheOutput) {
    ResendQueue queue(0, {.bounded_bytes = 4});
    queue.push("e", Keep::always);
    for (const char* line : {"aa", "bb", "cc"}) {
        queue.push(line, Keep::bounded);
    }
    EXPECT_EQ(queue.dropped(), 1U);
    EXPECT_THAT(sent_by(queue), ElementsAre("1e", "3bb", "4cc"));
    EXPECT_TRUE(queue.acknowledge(4));
    queue.push("dddd", Keep::bounded);
    EXPECT_EQ(queue.dropped(), 1U) << "the acknowledged ones take no room";
}

TEST(ResendQueue, SendsNoMoreThanTheWindow) {
    ResendQueue queue(0, {.window_bytes = 4});
    for (const char* line : {"aaa", "bb", "cccccc", "d"}) {
        queue.push(line, Keep::always);
    }
    EXPECT_THAT(sent_by(queue), ElementsAre("1aaa"));
    EXPECT_TRUE(queue.acknowledge(1));
    EXPECT_THAT(sent_by(queue), ElementsAre("2bb"));
    EXPECT_TRUE(queue.acknowledge(2));
    EXPECT_THAT(sent_by(queue), ElementsAre("3cccccc")) << "it is larger than the window, and alone";
    queue.reconnect();
    EXPECT_THAT(sent_by(queue), ElementsAre("3cccccc"));
    EXPECT_TRUE(queue.acknowledge(3));
    EXPECT_THAT(sent_by(queue), ElementsAre("4d"));
}

/// Connections break anywhere, with messages and acknowledgements on them.
TEST(ResendQueue, APeerGetsEachMessageOnceAndInOrder) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        ResendQueue queue;
        std::uint64_t seen = 0;
        std::vector<std::string> got;
        std::vector<std::string> wanted;
        while (wanted.size() < 50 || !queue.empty()) {
            const auto what = random() % 4;
            if (what == 0 && wanted.size() < 50) {
                wanted.push_back(std::to_string(wanted.size()));
                queue.push(wanted.back(), Keep::always);
            } else if (what == 1) {
                EXPECT_TRUE(queue.acknowledge(seen));
            } else if (const auto message = queue.next(); message && random() % 4 != 0) {
                if (message->sequence > seen) {
                    seen = message->sequence;
                    got.push_back(message->line);
                }
            } else {
                queue.reconnect();  // and the message was lost
            }
        }
        EXPECT_EQ(got, wanted) << "seed " << seed;
    }
}

}  // namespace
}  // namespace distilld

#include "server/security/refusal_limit.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace distilld {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::Pair;

/// How many of so many requests at once are admitted.
int admitted(RefusalLimit& limit, const std::string& address, int requests, RateLimit::Time now) {
    int count = 0;
    for (int i = 0; i < requests; ++i) {
        count += limit.admit(address, now) ? 1 : 0;
    }
    return count;
}

TEST(RefusalLimit, F7EachAddressHasItsShare) {
    RefusalLimit limit;
    const RateLimit::Time now{seconds(100'000)};
    EXPECT_EQ(admitted(limit, "a", 100, now), 60);
    EXPECT_EQ(admitted(limit, "b", 10, now), 10);
    EXPECT_EQ(limit.admit("a", now + seconds(1)), 40U) << "and the next says how many there were";
    EXPECT_EQ(admitted(limit, "a", 100, now + seconds(11)), 10);
}

TEST(RefusalLimit, F7ManyAddressesHaveABoundTogether) {
    RefusalLimit limit;
    const RateLimit::Time now{seconds(100'000)};
    int count = 0;
    for (int i = 0; i < 5000; ++i) {
        count += admitted(limit, std::to_string(i), 2, now);
    }
    EXPECT_EQ(count, 1000);
}

TEST(RefusalLimit, F7TellsOfThoseThatWentQuiet) {
    RefusalLimit limit;
    const RateLimit::Time now{seconds(100'000)};
    admitted(limit, "a", 70, now);
    admitted(limit, "b", 1, now);
    EXPECT_THAT(limit.forget_quiet(now + seconds(30)), ElementsAre());
    EXPECT_THAT(limit.forget_quiet(now + seconds(60)), ElementsAre(Pair("a", 10U)));
    EXPECT_THAT(limit.forget_quiet(now + seconds(60)), ElementsAre());
}

}  // namespace
}  // namespace distilld

#include "base/time.hpp"

#include <gtest/gtest.h>

#include <type_traits>

namespace distilld {
namespace {

using namespace std::chrono_literals;

template <class A, class B>
concept Addable = requires(A a, B b) { a + b; };

TEST(Time, PointsAndSpansDoNotMix) {
    static_assert(!std::is_convertible_v<Nanos, Instant> && !std::is_convertible_v<Instant, Nanos>);
    static_assert(!Addable<Instant, Instant> && Addable<Instant, Nanos>);
    static_assert(!std::is_convertible_v<std::chrono::steady_clock::time_point, Instant>);
    EXPECT_EQ(Instant(3s) - Instant(1s), Nanos(2'000'000'000));
}

TEST(Time, SecondsAndMillisecondsAreFractions) {
    EXPECT_EQ(from_seconds(0.1), 100ms);
    EXPECT_EQ(from_milliseconds(2.5), 2500us);
    EXPECT_DOUBLE_EQ(to_seconds(1500ms), 1.5);
    EXPECT_DOUBLE_EQ(to_milliseconds(1500us), 1.5);
    EXPECT_EQ(scaled(10ms, 0.25), 2500us);
}

}  // namespace
}  // namespace distilld

#include "pipeline/teacher/transport/body_buffer.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace distilld {
namespace {

TEST(BodyBuffer, KeepsItsContentAsItGrowsAndShrinks) {
    BodyBuffer buffer;
    buffer.start(5);
    buffer.resize(5);
    std::memcpy(buffer.data(), "five!", 5);
    buffer.reserve(std::size_t{8} << 20U);
    EXPECT_EQ(buffer.capacity(), std::size_t{8} << 20U);
    buffer.trim();
    EXPECT_EQ(buffer.capacity(), 5U);
    EXPECT_EQ(std::memcmp(buffer.data(), "five!", 5), 0);
}

TEST(BodyBuffer, IsAsLargeAsItsBodyWhateverItHeldBefore) {
    BodyBuffer buffer;
    buffer.start(std::size_t{64} << 20U);
    EXPECT_EQ(buffer.capacity(), std::size_t{64} << 20U);
    buffer.start(std::size_t{60} << 20U);
    EXPECT_EQ(buffer.capacity(), std::size_t{64} << 20U) << "not worth a new one";
    buffer.start(1000);
    EXPECT_EQ(buffer.capacity(), 1000U) << "a small answer must not hold the memory of a large one";
}

TEST(BufferPool, KeepsNoMoreThanItsBound) {
    BufferPool pool(1000);
    {
        const auto first = pool.acquire();
        const auto second = pool.acquire();
        first->resize(600);
        second->resize(600);
    }
    EXPECT_EQ(pool.idle_count(), 1U);
}

}  // namespace
}  // namespace distilld

#include "net/body_buffer.hpp"

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

TEST(BodyBuffer, KeepsItsContentFromMallocToPagesOfItsOwnAndBack) {
    BodyBuffer buffer;
    std::size_t filled = 0;
    const auto expect_content = [&] {
        for (std::size_t i = 0; i < filled; ++i) {
            ASSERT_EQ(buffer.data()[i], static_cast<std::byte>(i * 7)) << i;
        }
    };
    for (const std::size_t size :
         {std::size_t{1000}, std::size_t{200} << 10U, std::size_t{300} << 10U, std::size_t{5} << 20U}) {
        buffer.resize(size);
        for (; filled < size; ++filled) {
            buffer.data()[filled] = static_cast<std::byte>(filled * 7);
        }
        expect_content();
    }
    EXPECT_EQ(buffer.data()[buffer.size() + BodyBuffer::kPadding - 1], std::byte{0}) << "what is behind can be read";
    buffer.resize(2000);
    filled = 2000;
    buffer.trim();
    EXPECT_EQ(buffer.capacity(), 2000U);
    expect_content();
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

TEST(BufferPool, KeepsThoseThatWereUsedLast) {
    BufferPool pool(1000);
    auto first = pool.acquire();
    auto second = pool.acquire();
    first->resize(600);
    second->resize(700);
    const void* const last = second->data();
    first.reset();
    second.reset();
    pool.acquire(100'000)->resize(100'000);
    EXPECT_EQ(pool.idle_count(), 1U) << "what is above the bound is no reason to let go of another";
    EXPECT_EQ(pool.acquire(700)->data(), last);
}

TEST(BufferPool, LendsWhatHasTheRoomThatIsWanted) {
    BufferPool pool;
    const void* large = nullptr;
    const void* small = nullptr;
    {
        const auto a = pool.acquire(std::size_t{8} << 20U);
        const auto b = pool.acquire(std::size_t{1} << 20U);
        a->resize(std::size_t{8} << 20U);
        b->resize(std::size_t{1} << 20U);
        large = a->data();
        small = b->data();
    }
    EXPECT_EQ(pool.acquire(std::size_t{7} << 20U)->data(), large);
    EXPECT_EQ(pool.acquire(std::size_t{900} << 10U)->data(), small);
    const auto other = pool.acquire(std::size_t{3} << 20U);
    EXPECT_EQ(other->capacity(), 0U) << "neither too small a one, nor one that would hold twice as much";
    EXPECT_EQ(pool.idle_count(), 2U);
}

}  // namespace
}  // namespace distilld

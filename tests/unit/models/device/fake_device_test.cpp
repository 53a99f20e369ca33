#include "tests/unit/models/device/fake_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "models/training/staging_ring.hpp"
#include "tests/unit/models/device/guarded_memory.hpp"

/// What the other tests rely on: that the device shows mistakes.
namespace distilld::test {
namespace {

using torch::Tensor;

TEST(FakeDeviceDeathTest, ItsMemoryCannotBeReadByTheHost) {
    const Tensor there = torch::ones({3}).to(fake_device());
    ASSERT_EQ(there.device(), fake_device());
    EXPECT_TRUE(torch::equal((there * 2).to(torch::kCPU), torch::full({3}, 2.0F)));
    EXPECT_DEATH(
        {
            volatile float number = *static_cast<const float*>(there.const_data_ptr());
            static_cast<void>(number);
        },
        "");
}

TEST(FakeDevice, WhatWaitsIsCounted) {
    const Tensor there = torch::ones({3}).to(fake_device());
    reset_fake_device_counts();
    const Tensor sum = there.sum();
    EXPECT_EQ(fake_device_counts().copies_to_host, 0U);
    EXPECT_EQ(sum.item<float>(), 3);
    EXPECT_EQ(fake_device_counts().copies_to_host, 1U);
    static_cast<void>(sum.to(torch::kCPU));
    EXPECT_EQ(fake_device_counts().copies_to_host, 2U);
    static_cast<void>(there.nonzero());
    EXPECT_EQ(fake_device_counts().copies_to_host, 3U) << "how many there are";
    static_cast<void>(torch::ones({1}).to(fake_device()));
    EXPECT_EQ(fake_device_counts().waited_copies_to, 1U);
}

std::shared_ptr<const models::StagedCopies> stage(models::StagingRing& ring, std::int64_t number, std::int64_t count,
                                                  Tensor& there) {
    ring.begin();
    const Tensor piece = ring.host({count}, torch::kLong);
    piece.fill_(number);
    there = ring.to_device(piece);
    return ring.end();
}

TEST(StagingRing, CopiesRunBehindTheCallAndUseWaitsForThem) {
    const auto ring = std::make_unique<models::StagingRing>(fake_device());
    reset_fake_device_counts();
    Tensor there;
    const auto copies = stage(*ring, 7, 100, there);
    EXPECT_EQ(fake_device_copies_pending(), 1U);
    EXPECT_FALSE(torch::equal(there.to(torch::kCPU), torch::full({100}, 7, torch::kLong)));
    copies->use();
    EXPECT_EQ(fake_device_copies_pending(), 0U);
    EXPECT_TRUE(torch::equal(there.to(torch::kCPU), torch::full({100}, 7, torch::kLong)));
    const FakeDeviceCounts counts = fake_device_counts();
    EXPECT_EQ(counts.copies_behind, 1U);
    EXPECT_EQ(counts.waited_copies_to, 0U);
    EXPECT_EQ(counts.synchronized_events, 0U) << "the host does not wait";
    EXPECT_EQ(counts.blocked_streams, 1U);
    EXPECT_EQ(counts.recorded_tensors, 1U) << "freed memory is not given to others while the stream reads it";
}

TEST(StagingRing, ASlotIsWrittenAgainOnlyWhenItIsCopied) {
    const auto ring = std::make_unique<models::StagingRing>(fake_device());
    constexpr std::int64_t kBatches = 7;
    std::vector<Tensor> there(kBatches);
    std::vector<std::shared_ptr<const models::StagedCopies>> copies;
    for (std::int64_t i = 0; i < kBatches; ++i) {
        copies.push_back(stage(*ring, i, 1000, there[static_cast<std::size_t>(i)]));
        EXPECT_LE(fake_device_copies_pending(), 2U) << "two slots";
    }
    for (std::int64_t i = kBatches; i-- > 0;) {
        copies[static_cast<std::size_t>(i)]->use();
        EXPECT_TRUE(
            torch::equal(there[static_cast<std::size_t>(i)].to(torch::kCPU), torch::full({1000}, i, torch::kLong)));
    }
}

TEST(StagingRing, ASlotGrowsToTheLargestBatchAndIsKept) {
    const auto ring = std::make_unique<models::StagingRing>(fake_device());
    Tensor there;
    const auto pieces = [&](std::int64_t count) {
        ring->begin();
        for (const auto type : {torch::kByte, torch::kLong, torch::kHalf, torch::kFloat}) {
            const Tensor piece = ring->host({count, 3}, type);
            EXPECT_TRUE(pinned_memory().holds(piece.const_data_ptr()) && piece.is_contiguous());
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece.data_ptr()) % 64, 0U);
            piece.fill_(5);
            there = ring->to_device(piece);
        }
        ring->end()->use();
        EXPECT_TRUE(torch::equal(there.to(torch::kCPU), torch::full({count, 3}, 5.0F)));
    };
    for (const std::int64_t count : {10, 10, 50, 50, 1, 1}) {
        pieces(count);
    }
    for (int turn = 0; turn < 2; ++turn) {
        pieces(50);  // a slot that needed several blocks makes them one
    }
    reset_fake_device_counts();
    for (const std::int64_t count : {50, 50, 20, 1, 50, 50}) {
        pieces(count);
    }
    EXPECT_EQ(fake_device_counts().pinned_allocations, 0U);
}

TEST(StagingRing, AnEmptyPieceAndABatchThatWasRefusedDoNoHarm) {
    const auto ring = std::make_unique<models::StagingRing>(fake_device());
    Tensor there;
    ring->begin();
    Tensor piece = ring->host({4}, torch::kLong);
    piece.fill_(1);
    const Tensor dropped = ring->to_device(piece);  // and no end()
    for (std::int64_t i = 0; i < 4; ++i) {
        ring->begin();
        piece = ring->host({0}, torch::kLong);
        EXPECT_EQ(ring->to_device(piece).numel(), 0);
        piece = ring->host({4}, torch::kLong);
        piece.fill_(i);
        there = ring->to_device(piece);
        ring->end()->use();
        EXPECT_TRUE(torch::equal(there.to(torch::kCPU), torch::full({4}, i, torch::kLong)));
    }
    EXPECT_TRUE(torch::equal(dropped.to(torch::kCPU), torch::ones({4}, torch::kLong)));
}

TEST(StagingRing, CopiesUnderWayAreDoneBeforeTheSlotsGo) {
    Tensor there;
    std::shared_ptr<const models::StagedCopies> copies;
    {
        const auto ring = std::make_unique<models::StagingRing>(fake_device());
        copies = stage(*ring, 3, 500, there);
    }
    EXPECT_EQ(fake_device_copies_pending(), 0U);
    copies->use();
    EXPECT_TRUE(torch::equal(there.to(torch::kCPU), torch::full({500}, 3, torch::kLong)));
}

}  // namespace
}  // namespace distilld::test

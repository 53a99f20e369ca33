#include "models/optimizers/gradient_norm.hpp"

#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace distilld::models {
namespace {

using torch::Tensor;

TEST(RunInParts, EveryPartHasAThreadOfItsOwn) {
    std::mutex mutex;
    std::set<std::thread::id> threads;
    std::vector<int> visits(1000);
    // Nobody passes before all three are there: with fewer threads this would not end.
    std::barrier everybody(3);
    run_in_parts(1000, 300, 8, [&](std::int64_t begin, std::int64_t end) {
        everybody.arrive_and_wait();
        for (std::int64_t i = begin; i < end; ++i) {
            ++visits[static_cast<std::size_t>(i)];
        }
        const std::scoped_lock lock(mutex);
        threads.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(threads.size(), 3U);
    EXPECT_TRUE(threads.contains(std::this_thread::get_id()));
    EXPECT_EQ(visits, std::vector<int>(1000, 1));
}

TEST(RunInParts, LittleWorkStaysWithTheCaller) {
    for (const auto& [count, max_threads] : {std::pair<std::int64_t, int>{0, 4}, {99, 4}, {1000, 1}, {1000, 0}}) {
        std::int64_t done = 0;
        run_in_parts(count, 100, max_threads, [&](std::int64_t begin, std::int64_t end) { done += end - begin; });
        EXPECT_EQ(done, count);
    }
}

class Norm : public testing::TestWithParam<torch::ScalarType> {};

TEST_P(Norm, IsExactAndDoesNotDependOnTheThreads) {
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(1);
    std::vector<Tensor> tensors;
    // The last two are of more than 64 blocks of 2^15 elements each, so that three threads share them.
    for (const std::int64_t count : {1, 15, 17, 1023, 1025, 40000, 3000001, 4000003}) {
        tensors.push_back(torch::randn({count}, generator, torch::kFloat).to(GetParam()));
        double wanted = 0;
        for (const Tensor& tensor : tensors) {
            wanted += tensor.to(torch::kDouble).square().sum().item<double>();
        }
        const double alone = l2_norm(tensors, 1);
        EXPECT_NEAR(alone, std::sqrt(wanted), 1e-6 * std::sqrt(wanted)) << count;
        for (const int threads : {2, 3, 5}) {
            EXPECT_EQ(l2_norm(tensors, threads), alone) << count << " elements, " << threads << " threads";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, Norm, testing::Values(torch::kFloat, torch::kDouble));

TEST(L2Norm, IsNotFiniteWhenAnElementIsNot) {
    Tensor bad = torch::zeros({5000});
    bad[4321] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(l2_norm(std::vector<Tensor>{torch::ones({3}), bad})));
    bad[4321] = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(std::isfinite(l2_norm(std::vector<Tensor>{bad})));
    EXPECT_EQ(l2_norm({}), 0);
}

}  // namespace
}  // namespace distilld::models

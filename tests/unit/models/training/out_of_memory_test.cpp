#include "models/training/out_of_memory.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <new>
#include <stdexcept>

namespace distilld::models {
namespace {

TEST(OutOfMemory, IsWhatLibtorchSaysOfAnAllocationThatCannotBe) {
    try {
        const auto tensor = torch::empty({std::int64_t{1} << 50}, torch::kFloat32);
        ADD_FAILURE() << "4 PiB fitted: " << tensor.numel();
    } catch (const std::exception& error) {
        EXPECT_TRUE(is_out_of_memory(error)) << error.what();
        EXPECT_EQ(memory_words(error).find('\n'), std::string::npos);
        EXPECT_NE(memory_words(error).find("allocate"), std::string::npos) << memory_words(error);
    }
}

TEST(OutOfMemory, IsBadAlloc) {
    EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
    EXPECT_EQ(memory_words(std::bad_alloc()), "std::bad_alloc");
}

TEST(OutOfMemory, IsNoOtherFault) {
    EXPECT_FALSE(is_out_of_memory(std::runtime_error("out of range")));
    try {
        const auto product = torch::matmul(torch::ones({2, 3}), torch::ones({2, 3}));
        ADD_FAILURE() << "the shapes fitted: " << product.numel();
    } catch (const std::exception& error) {
        EXPECT_FALSE(is_out_of_memory(error)) << error.what();
    }
}

}  // namespace
}  // namespace distilld::models

#include "models/optimizers/gradient_norm.hpp"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <thread>
#include <vector>

namespace distilld::models {
namespace {

using torch::Tensor;

constexpr std::int64_t kBlock = 1 << 15;  ///< elements; one thread adds the squares of a block
constexpr std::int64_t kRun = 1 << 10;    ///< elements of a block, added in lanes before they go to fp64
constexpr std::size_t kLanes = 16;
constexpr std::int64_t kMinPart = 64;  ///< blocks, so that a thread has at least 2 million elements

/// Sixteen partial sums of at most 64 squares each, then fp64: exact enough, and as fast as memory.
template <class T>
double block_sum(const T* data, std::int64_t count) {
    double total = 0;
    std::int64_t at = 0;
    while (at < count) {
        const std::int64_t run = std::min(kRun, count - at);
        T lanes[kLanes] = {};
        std::int64_t i = 0;
        for (; i + static_cast<std::int64_t>(kLanes) <= run; i += static_cast<std::int64_t>(kLanes)) {
            for (std::size_t lane = 0; lane < kLanes; ++lane) {
                const T x = data[at + i + static_cast<std::int64_t>(lane)];
                lanes[lane] += x * x;
            }
        }
        for (; i < run; ++i) {
            const T x = data[at + i];
            lanes[0] += x * x;
        }
        for (const T lane : lanes) {
            total += lane;
        }
        at += run;
    }
    return total;
}

double block_sum(const Tensor& flat, std::int64_t block) {
    const std::int64_t first = block * kBlock;
    const std::int64_t count = std::min(kBlock, flat.numel() - first);
    const void* values = flat.const_data_ptr();
    return flat.scalar_type() == torch::kDouble ? block_sum(static_cast<const double*>(values) + first, count)
                                                : block_sum(static_cast<const float*>(values) + first, count);
}

std::int64_t block_count(const Tensor& tensor) {
    return (tensor.numel() + kBlock - 1) / kBlock;
}

/// Σx² of each tensor, [n] fp64 on their device.
Tensor squares_on_device(std::span<const Tensor> tensors) {
    std::vector<Tensor> norms;
    norms.reserve(tensors.size());
    for (const Tensor& tensor : tensors) {
        norms.push_back(at::linalg_vector_norm(tensor, 2, std::nullopt, false, torch::kDouble));
    }
    return torch::stack(norms).square();
}

bool on_device(std::span<const Tensor> tensors) {
    return !tensors.empty() && !tensors.front().device().is_cpu();
}

}  // namespace

std::vector<double> squared_norms(std::span<const Tensor> tensors, int max_threads) {
    if (on_device(tensors)) {
        const Tensor squares = squares_on_device(tensors).to(torch::kCPU);
        const auto* values = static_cast<const double*>(squares.const_data_ptr());
        return {values, values + squares.numel()};
    }
    struct Block {
        std::size_t tensor = 0;
        std::int64_t number = 0;
    };
    std::vector<Tensor> flat;
    std::vector<Block> blocks;
    for (const Tensor& tensor : tensors) {
        for (std::int64_t number = 0; number < block_count(tensor); ++number) {
            blocks.push_back({flat.size(), number});
        }
        flat.push_back(tensor.contiguous());
    }
    std::vector<double> sums(blocks.size());
    run_in_parts(static_cast<std::int64_t>(blocks.size()), kMinPart, max_threads,
                 [&](std::int64_t begin, std::int64_t end) {
                     for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
                         sums[i] = block_sum(flat[blocks[i].tensor], blocks[i].number);
                     }
                 });
    std::vector<double> of_tensors;
    std::size_t next = 0;
    for (const Tensor& tensor : flat) {
        double of_tensor = 0;
        for (std::int64_t number = 0; number < block_count(tensor); ++number) {
            of_tensor += sums[next++];
        }
        of_tensors.push_back(of_tensor);
    }
    return of_tensors;
}

Tensor l2_norm_scalar(std::span<const Tensor> tensors, int max_threads) {
    const torch::NoGradGuard no_grad;
    if (on_device(tensors)) {
        return squares_on_device(tensors).sum().sqrt();
    }
    double total = 0;
    for (const double of_tensor : squared_norms(tensors, max_threads > 0 ? max_threads : at::get_num_threads())) {
        total += of_tensor;
    }
    return torch::scalar_tensor(std::sqrt(total), torch::kDouble);
}

double l2_norm(std::span<const Tensor> tensors, int max_threads) {
    return l2_norm_scalar(tensors, max_threads).item<double>();
}

void run_in_parts(std::int64_t count, std::int64_t min_part, int max_threads,
                  const std::function<void(std::int64_t, std::int64_t)>& run) {
    const std::int64_t parts = std::clamp<std::int64_t>(count / min_part, 1, std::max(max_threads, 1));
    const auto begin_of = [&](std::int64_t part) { return count * part / parts; };
    std::vector<std::jthread> helpers;
    helpers.reserve(static_cast<std::size_t>(parts - 1));
    for (std::int64_t part = 1; part < parts; ++part) {
        helpers.emplace_back([&run, begin = begin_of(part), end = begin_of(part + 1)] { run(begin, end); });
    }
    run(0, begin_of(1));
}

}  // namespace distilld::models

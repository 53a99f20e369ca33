#include "models/kernels/rms_norm.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "models/kernels/element_types.hpp"
#include "models/kernels/instructions.hpp"
#include "models/kernels/numbers.hpp"
#include "models/kernels/parallel.hpp"

namespace distilld::kernels {
namespace {

using torch::Tensor;

/// Rows whose part of the weight's gradient is summed at once.
constexpr std::int64_t kBlockRows = 64;

template <typename T>
struct ForwardRows {
    const T* input;
    const T* addition;  ///< nullptr: none
    const T* weight;
    T* stream;  ///< unused without an addition
    T* normed;
    Wide<T>* scale;
    std::int64_t size;
    Wide<T> epsilon;

    DISTILLD_INLINE static void run(const ForwardRows* all, std::int64_t begin, std::int64_t end) {
        const ForwardRows rows = *all;
        for (std::int64_t row = begin; row < end; ++row) {
            const T* values = rows.input + row * rows.size;
            if (rows.addition != nullptr) {
                const T* more = rows.addition + row * rows.size;
                T* sums = rows.stream + row * rows.size;
                for (std::int64_t i = 0; i < rows.size; ++i) {
                    sums[i] = narrowed<T>(widened(values[i]) + widened(more[i]));
                }
                values = sums;
            }
            const auto squares = lane_sum<Wide<T>>(
                rows.size, [values](std::int64_t i) { return widened(values[i]) * widened(values[i]); });
            const Wide<T> scale = 1 / std::sqrt(squares / static_cast<Wide<T>>(rows.size) + rows.epsilon);
            rows.scale[row] = scale;
            T* out = rows.normed + row * rows.size;
            for (std::int64_t i = 0; i < rows.size; ++i) {
                out[i] = narrowed<T>(widened(rows.weight[i]) * rounded<T>(widened(values[i]) * scale));
            }
        }
    }
};

template <typename T>
struct BackwardRows {
    const T* gradient;
    const T* passed;  ///< nullptr: none
    const T* stream;
    const Wide<T>* scale;
    const T* weight;
    T* out;
    double* weight_parts;  ///< [blocks, size], zero; nullptr: not requested
    std::int64_t rows;
    std::int64_t size;

    DISTILLD_INLINE static void run(const BackwardRows* all, std::int64_t begin_block, std::int64_t end_block) {
        const BackwardRows rows = *all;
        for (std::int64_t block = begin_block; block < end_block; ++block) {
            const std::int64_t end = std::min(rows.rows, (block + 1) * kBlockRows);
            for (std::int64_t row = block * kBlockRows; row < end; ++row) {
                one_row(rows, block, row);
            }
        }
    }

    DISTILLD_INLINE static void one_row(const BackwardRows& rows, std::int64_t block, std::int64_t row) {
        const std::int64_t size = rows.size;
        const T* gradient = rows.gradient + row * size;
        const T* stream = rows.stream + row * size;
        const T* weight = rows.weight;
        const T* passed = rows.passed == nullptr ? nullptr : rows.passed + row * size;
        const Wide<T> scale = rows.scale[row];
        T* out = rows.out + row * size;
        // y = w·x·s with s = (mean(x²) + ε)^(−1/2), so dx = s·(w·dy − x·s²·mean(w·dy·x)).
        const auto product = lane_sum<Wide<T>>(size, [gradient, stream, weight](std::int64_t i) {
            return widened(gradient[i]) * widened(weight[i]) * widened(stream[i]);
        });
        const Wide<T> along = product / static_cast<Wide<T>>(size) * scale * scale;
        if (passed != nullptr) {
            for (std::int64_t i = 0; i < size; ++i) {
                const Wide<T> own = scale * (widened(gradient[i]) * widened(weight[i]) - widened(stream[i]) * along);
                out[i] = narrowed<T>(widened(passed[i]) + own);
            }
        } else {
            for (std::int64_t i = 0; i < size; ++i) {
                out[i] = narrowed<T>(scale * (widened(gradient[i]) * widened(weight[i]) - widened(stream[i]) * along));
            }
        }
        if (rows.weight_parts != nullptr) {
            double* parts = rows.weight_parts + block * size;
            for (std::int64_t i = 0; i < size; ++i) {
                parts[i] += widened(gradient[i]) * rounded<T>(widened(stream[i]) * scale);
            }
        }
    }
};

/// Sums columns of the blocks in order.
struct BlockSums {
    double* parts;  ///< [blocks, size]; the first block becomes the sum
    std::int64_t blocks;
    std::int64_t size;

    DISTILLD_INLINE static void run(const BlockSums* all, std::int64_t begin, std::int64_t end) {
        const BlockSums sums = *all;
        for (std::int64_t block = 1; block < sums.blocks; ++block) {
            const double* part = sums.parts + block * sums.size;
            for (std::int64_t i = begin; i < end; ++i) {
                sums.parts[i] += part[i];
            }
        }
    }
};

}  // namespace

NormedRows rms_norm(const Tensor& input, const Tensor& addition, const Tensor& weight, double epsilon) {
    const std::int64_t count = input.size(0);
    const std::int64_t size = input.size(1);
    NormedRows out;
    out.stream = addition.defined() ? torch::empty_like(input) : input;
    out.normed = torch::empty_like(input);
    out.scale = torch::empty({count}, input.options().dtype(wide_type(input.scalar_type())));
    with_element_type(input.scalar_type(), [&]<typename T>() {
        const ForwardRows<T> rows{elements<T>(input),
                                  elements<T>(addition),
                                  elements<T>(weight),
                                  addition.defined() ? mutable_elements<T>(out.stream) : nullptr,
                                  mutable_elements<T>(out.normed),
                                  mutable_elements<Wide<T>>(out.scale),
                                  size,
                                  static_cast<Wide<T>>(epsilon)};
        in_parallel(count, grain_of(size),
                    [&rows](std::int64_t begin, std::int64_t end) { run_widest<ForwardRows<T>>(&rows, begin, end); });
    });
    return out;
}

NormGradients rms_norm_backward(const Tensor& gradient, const Tensor& passed, const Tensor& stream, const Tensor& scale,
                                const Tensor& weight, bool with_weight) {
    const std::int64_t count = stream.size(0);
    const std::int64_t size = stream.size(1);
    const std::int64_t blocks = (count + kBlockRows - 1) / kBlockRows;
    NormGradients out;
    out.stream = torch::empty_like(stream);
    Tensor parts;
    if (with_weight) {
        parts = torch::zeros({std::max<std::int64_t>(blocks, 1), size}, scale.options().dtype(torch::kDouble));
    }
    with_element_type(stream.scalar_type(), [&]<typename T>() {
        const BackwardRows<T> rows{elements<T>(gradient),
                                   elements<T>(passed),
                                   elements<T>(stream),
                                   elements<Wide<T>>(scale),
                                   elements<T>(weight),
                                   mutable_elements<T>(out.stream),
                                   with_weight ? mutable_elements<double>(parts) : nullptr,
                                   count,
                                   size};
        in_parallel(blocks, grain_of(size * kBlockRows),
                    [&rows](std::int64_t begin, std::int64_t end) { run_widest<BackwardRows<T>>(&rows, begin, end); });
    });
    if (with_weight) {
        const BlockSums sums{mutable_elements<double>(parts), blocks, size};
        in_parallel(size, grain_of(blocks),
                    [&sums](std::int64_t begin, std::int64_t end) { run_widest<BlockSums>(&sums, begin, end); });
        out.weight = parts[0].to(scale.scalar_type());
    }
    return out;
}

}  // namespace distilld::kernels

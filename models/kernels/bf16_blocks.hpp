#pragma once

#include <cstdint>

#include "models/kernels/lanes.hpp"

/// Products of bf16 matrices with fp32 sums, and the layouts that their operands have. No libtorch here. Widths and
/// depths are multiples of kBlock; what an operand lacks is zero.
namespace distilld::kernels {

/// Instructions for products of bf16. Their sums differ in order, so bits differ between them. `tiles` is AMX, `dots`
/// is AVX512-BF16.
enum class Bf16Instructions { none, dots, tiles };

/// The best that this processor and its system have.
[[nodiscard]] Bf16Instructions bf16_instructions();

inline constexpr std::int64_t kBlock = 32;

// Clang 16 cannot convert to __bf16.
#if defined(__x86_64__) && (!defined(__clang__) || __clang_major__ >= 17)

/// A function that is called only where bf16_instructions() is not none.
#define DISTILLD_BF16 [[gnu::target("arch=x86-64-v4,avx512bf16")]]

/// The bits of two bf16 numbers in neighbouring rows, the lower row in the lower half.
using Pair = std::uint32_t;

/// Lets this thread use `instructions` as long as it lives.
class Bf16Products {
  public:
    explicit Bf16Products(Bf16Instructions instructions);
    ~Bf16Products();
    Bf16Products(const Bf16Products&) = delete;
    Bf16Products& operator=(const Bf16Products&) = delete;

    struct Operands {
        const std::uint16_t* left;  ///< [rows, depth] bf16
        std::int64_t left_stride;
        const Pair* right;  ///< [depth / 2, columns]
        std::int64_t right_stride;
        float* out;  ///< [rows, columns]
        std::int64_t out_stride;
        std::int64_t rows;
        std::int64_t columns;
        std::int64_t depth;
        bool adds;  ///< to `out`
    };
    void multiply(const Operands& operands) const;

  private:
    Bf16Instructions instructions_;
};

/// Rows of bf16 numbers that need not be contiguous.
struct Bf16Rows {
    const std::uint16_t* data;
    std::int64_t stride;
    std::int64_t rows;
    std::int64_t size;

    [[nodiscard]] Bf16Rows from(std::int64_t row) const { return {data + row * stride, stride, rows - row, size}; }
};

/// [height, width], zero outside of `from`.
DISTILLD_BF16 void copy_padded(const Bf16Rows& from, std::int64_t height, std::int64_t width, std::uint16_t* out);

/// The right operand `from`: [height / 2, width].
DISTILLD_BF16 void pair_rows(const Bf16Rows& from, std::int64_t height, std::int64_t width, Pair* out);

/// The right operand `from`ᵀ: [width / 2, height], with rows of `out_stride`.
DISTILLD_BF16 void pair_columns(const Bf16Rows& from, std::int64_t height, std::int64_t width, Pair* out,
                                std::int64_t out_stride);

/// The left operand of pairs [height, width]: [2 · height, width].
DISTILLD_BF16 void split_pairs(const Pair* from, std::int64_t from_stride, std::int64_t height, std::int64_t width,
                               std::uint16_t* out, std::int64_t out_stride);

/// out[column][row] = from[row][column] · factors[column] in bf16, for `rows` × `columns` numbers; `from` has whole
/// blocks.
DISTILLD_BF16 void write_transposed(const float* from, std::int64_t from_stride, const float* factors,
                                    std::int64_t rows, std::int64_t columns, std::uint16_t* out,
                                    std::int64_t out_stride);

#endif

}  // namespace distilld::kernels

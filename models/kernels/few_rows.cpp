#include "models/kernels/few_rows.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include "models/kernels/bf16_blocks.hpp"
#include "models/kernels/element_types.hpp"
#include "models/kernels/instructions.hpp"
#include "models/kernels/numbers.hpp"
#include "models/kernels/parallel.hpp"

#ifdef DISTILLD_BF16
#include <immintrin.h>
#endif

namespace distilld::kernels {
namespace {

using torch::Tensor;

/// Rows of W and of x whose sums are in registers at once: 16 of AVX-512's 32.
constexpr std::int64_t kWeightRows = 4;
constexpr std::int64_t kInputRows = 4;

/// Into a variable: a vector as a result would be passed differently by each instruction set.
template <typename T>
DISTILLD_INLINE void widen(const T* values, Lanes<Wide<T>>& wide) {
    if constexpr (std::is_same_v<T, c10::BFloat16>) {
        using Bits [[gnu::vector_size(kLanes * sizeof(std::uint16_t))]] = std::uint16_t;
        using WideBits [[gnu::vector_size(kLanes * sizeof(std::uint32_t))]] = std::uint32_t;
        Bits bits;
        std::memcpy(&bits, values, sizeof(bits));
        const WideBits shifted = __builtin_convertvector(bits, WideBits) << 16U;
        std::memcpy(&wide, &shifted, sizeof(wide));
    } else {
        std::memcpy(&wide, values, sizeof(wide));
    }
}

template <std::int64_t Columns, typename Multiplied>
DISTILLD_INLINE void multiply_all_rows(const Multiplied& product, std::int64_t column) {
    std::int64_t row = 0;
    for (; row + kInputRows <= product.rows; row += kInputRows) {
        product.template block<Columns, kInputRows>(column, row);
    }
    for (; row < product.rows; ++row) {
        product.template block<Columns, 1>(column, row);
    }
}

/// Blocks [begin, end) of kWeightRows columns.
template <typename Multiplied>
DISTILLD_INLINE void multiply_blocks(const Multiplied& product, std::int64_t begin, std::int64_t end) {
    for (std::int64_t column = begin * kWeightRows; column < std::min(end * kWeightRows, product.columns);) {
        if (column + kWeightRows <= product.columns) {
            multiply_all_rows<kWeightRows>(product, column);
            column += kWeightRows;
        } else {
            multiply_all_rows<1>(product, column++);
        }
    }
}

/// The processor by itself fetches rows of W too late. While a block is multiplied, this asks for its share of the rows
/// that come next: all rows of x together ask for all of them.
template <typename T, std::int64_t Columns, std::int64_t Rows>
class RowsAhead {
  public:
    template <typename Multiplied>
    DISTILLD_INLINE RowsAhead(const Multiplied& product, std::int64_t column, std::int64_t row)
        : depth_(product.depth),
          first_((row * Columns + product.rows - 1) / product.rows),
          last_(((row + Rows) * Columns + product.rows - 1) / product.rows) {
        const std::int64_t next = column + 2 * Columns <= product.columns ? column + Columns : column;
        rows_ = product.weight + next * depth_;
    }

    DISTILLD_INLINE void fetch(std::int64_t k) const {
        for (std::int64_t c = first_; c < last_; ++c) {
            __builtin_prefetch(rows_ + c * depth_ + k, 0, 2);
        }
    }

  private:
    const T* rows_ = nullptr;
    std::int64_t depth_;
    std::int64_t first_;
    std::int64_t last_;
};

template <typename T>
struct Product {
    const Wide<T>* x;  ///< [rows, depth in whole lanes], zero behind the depth
    const T* weight;   ///< [columns, depth]
    const T* bias;     ///< [columns]; null: none
    T* out;            ///< [rows, columns]
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t depth;
    std::int64_t stride;  ///< of x

    /// The block of `Columns` rows of W from `column` on, for `Rows` rows of x from `row` on.
    template <std::int64_t Columns, std::int64_t Rows>
    DISTILLD_INLINE void block(std::int64_t column, std::int64_t row) const {
        std::array<std::array<Lanes<Wide<T>>, Rows>, Columns> sums{};
        const T* w = weight + column * depth;
        const Wide<T>* v = x + row * stride;
        const std::int64_t whole = depth - depth % kLanes;
        const RowsAhead<T, Columns, Rows> ahead(*this, column, row);
        for (std::int64_t k = 0; k < whole; k += kLanes) {
            ahead.fetch(k);
            std::array<Lanes<Wide<T>>, Columns> weights;
            for (std::int64_t c = 0; c < Columns; ++c) {
                widen(w + c * depth + k, weights[static_cast<std::size_t>(c)]);
            }
            add<Columns, Rows>(sums, weights, v + k);
        }
        if (whole < depth) {
            std::array<Lanes<Wide<T>>, Columns> weights;
            for (std::int64_t c = 0; c < Columns; ++c) {
                std::array<T, kLanes> rest{};
                std::copy_n(w + c * depth + whole, depth - whole, rest.begin());
                widen(rest.data(), weights[static_cast<std::size_t>(c)]);
            }
            add<Columns, Rows>(sums, weights, v + whole);
        }
#pragma GCC unroll 4
        for (std::int64_t c = 0; c < Columns; ++c) {
#pragma GCC unroll 4
            for (std::int64_t r = 0; r < Rows; ++r) {
                std::array<Wide<T>, kLanes> lanes;
                std::memcpy(lanes.data(), &sums[static_cast<std::size_t>(c)][static_cast<std::size_t>(r)],
                            sizeof(lanes));
                const Wide<T> sum = pair_sum(lanes);
                out[(row + r) * columns + column + c] =
                    narrowed<T>(bias != nullptr ? sum + widened(bias[column + c]) : sum);
            }
        }
    }

    template <std::int64_t Columns, std::int64_t Rows>
    DISTILLD_INLINE void add(std::array<std::array<Lanes<Wide<T>>, Rows>, Columns>& sums,
                             const std::array<Lanes<Wide<T>>, Columns>& weights, const Wide<T>* v) const {
        for (std::int64_t r = 0; r < Rows; ++r) {
            Lanes<Wide<T>> values;
            widen(v + r * stride, values);
            for (std::int64_t c = 0; c < Columns; ++c) {
                sums[static_cast<std::size_t>(c)][static_cast<std::size_t>(r)] +=
                    weights[static_cast<std::size_t>(c)] * values;
            }
        }
    }

    DISTILLD_INLINE static void run(const Product* all, std::int64_t begin, std::int64_t end) {
        const Product product = *all;
        multiply_blocks(product, begin, end);
    }
};

#ifdef DISTILLD_BF16

/// As in Product, in bf16.
struct Bf16Sides {
    const std::uint16_t* weight;
    const std::uint16_t* bias;
    std::uint16_t* out;
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t depth;
};

/// The same with the dot products of AVX512-BF16: pairs of bf16 products, in the order of the instruction.
struct DotProduct : Bf16Sides {
    const std::uint16_t* x;  ///< [rows, depth in whole kBlocks], zero behind the depth
    std::int64_t stride;

    template <std::int64_t Columns, std::int64_t Rows>
    DISTILLD_BF16 void block(std::int64_t column, std::int64_t row) const {
        __m512 sums[Columns][Rows];
#pragma GCC unroll 4
        for (auto& of_column : sums) {
#pragma GCC unroll 4
            for (auto& sum : of_column) {
                sum = _mm512_setzero_ps();
            }
        }
        const std::uint16_t* w = weight + column * depth;
        const std::uint16_t* v = x + row * stride;
        const RowsAhead<std::uint16_t, Columns, Rows> ahead(*this, column, row);
        for (std::int64_t k = 0; k < depth; k += kBlock) {
            ahead.fetch(k);
            // Behind the depth lies the next row, or nothing.
            const __mmask32 there = depth - k >= kBlock ? ~__mmask32{0} : (__mmask32{1} << (depth - k)) - 1;
            __m512bh weights[Columns];
#pragma GCC unroll 4
            for (std::size_t c = 0; c < Columns; ++c) {
                weights[c] = reinterpret_cast<__m512bh>(
                    _mm512_maskz_loadu_epi16(there, w + static_cast<std::int64_t>(c) * depth + k));
            }
#pragma GCC unroll 4
            for (std::size_t r = 0; r < Rows; ++r) {
                const auto values =
                    reinterpret_cast<__m512bh>(_mm512_loadu_si512(v + static_cast<std::int64_t>(r) * stride + k));
#pragma GCC unroll 4
                for (std::size_t c = 0; c < Columns; ++c) {
                    sums[c][r] = _mm512_dpbf16_ps(sums[c][r], weights[c], values);
                }
            }
        }
        __m512 all[kWeightRows * kInputRows];
#pragma GCC unroll 16
        for (std::size_t i = 0; i < std::size(all); ++i) {
            all[i] = i < Columns * Rows ? sums[i % Columns][i / Columns] : _mm512_setzero_ps();
        }
        std::array<float, kWeightRows * kInputRows> biases{};
        for (std::size_t i = 0; bias != nullptr && i < Columns * Rows; ++i) {
            const std::uint16_t number = bias[column + static_cast<std::int64_t>(i % Columns)];
            biases[i] = widened(c10::BFloat16(number, c10::BFloat16::from_bits()));
        }
        const __m512 whole = _mm512_add_ps(sums_of(all), _mm512_loadu_ps(biases.data()));
        std::array<std::uint16_t, kWeightRows * kInputRows> narrow;
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(narrow.data()),
                            reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(whole)));
        for (std::int64_t r = 0; r < Rows; ++r) {
            std::memcpy(out + (row + r) * columns + column, narrow.data() + r * Columns,
                        Columns * sizeof(std::uint16_t));
        }
    }

    /// Lane i: the sum of the lanes of `all[i]`, which are added in the same pairs for each i.
    DISTILLD_BF16 static __m512 sums_of(const __m512 (&all)[kWeightRows * kInputRows]) {
        // Each: fours of neighbours in each quarter of a vector.
        __m512 fours[4];
#pragma GCC unroll 4
        for (std::size_t i = 0; i < 4; ++i) {
            const __m512* of = all + 4 * i;
            const __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(of[0], of[1]), _mm512_unpackhi_ps(of[0], of[1]));
            const __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(of[2], of[3]), _mm512_unpackhi_ps(of[2], of[3]));
            const __m512d left = _mm512_castps_pd(a);
            const __m512d right = _mm512_castps_pd(b);
            fours[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(left, right)),
                                     _mm512_castpd_ps(_mm512_unpackhi_pd(left, right)));
        }
        __m512 halves[2];
#pragma GCC unroll 2
        for (std::size_t i = 0; i < 2; ++i) {
            halves[i] = _mm512_add_ps(_mm512_shuffle_f32x4(fours[2 * i], fours[2 * i + 1], 0x44),
                                      _mm512_shuffle_f32x4(fours[2 * i], fours[2 * i + 1], 0xEE));
        }
        return _mm512_add_ps(_mm512_shuffle_f32x4(halves[0], halves[1], 0x88),
                             _mm512_shuffle_f32x4(halves[0], halves[1], 0xDD));
    }
};

/// The same with AMX, which computes each row of a tile independently: kBlock rows of W by all rows of x.
struct TileProduct : Bf16Sides {
    const Pair* x;  ///< xᵀ [depth / 2, width], both in whole kBlocks, zero behind them
    std::int64_t width;

    /// Blocks [begin, end) of kBlock columns.
    DISTILLD_BF16 void multiply(std::int64_t begin, std::int64_t end) const {
        const Bf16Products products(Bf16Instructions::tiles);
        const std::int64_t deep = whole_blocks(depth);
        std::vector<std::uint16_t> padded;
        std::vector<float> sums(static_cast<std::size_t>(kBlock * width));
        const std::vector<float> ones(static_cast<std::size_t>(width), 1.0F);
        for (std::int64_t column = begin * kBlock; column < std::min(end * kBlock, columns); column += kBlock) {
            const Bf16Rows block{weight + column * depth, depth, std::min(kBlock, columns - column), depth};
            const bool whole = block.rows == kBlock && depth == deep;
            if (!whole) {
                padded.resize(static_cast<std::size_t>(kBlock * deep));
                copy_padded(block, kBlock, deep, padded.data());
            }
            for (std::int64_t c = 0; bias != nullptr && c < block.rows; ++c) {
                const c10::BFloat16 number(bias[column + c], c10::BFloat16::from_bits());
                std::fill_n(sums.begin() + c * width, width, widened(number));
            }
            products.multiply({whole ? block.data : padded.data(), deep, x, width, sums.data(), width, kBlock, width,
                               deep, /*adds=*/bias != nullptr});
            write_transposed(sums.data(), width, ones.data(), block.rows, rows, out + column, columns);
        }
    }

    static std::int64_t whole_blocks(std::int64_t size) { return (size + kBlock - 1) / kBlock * kBlock; }
};

#endif

/// `rows` in whole blocks of `block` numbers of `type`, zero behind them.
Tensor in_blocks(const Tensor& rows, std::int64_t block, torch::ScalarType type) {
    const std::int64_t depth = rows.size(1);
    if (depth % block == 0 && rows.scalar_type() == type) {
        return rows.contiguous();
    }
    Tensor padded = torch::zeros({rows.size(0), (depth + block - 1) / block * block}, rows.options().dtype(type));
    padded.narrow(1, 0, depth).copy_(rows);
    return padded;
}

}  // namespace

bool takes_few_rows(const Tensor& weight) {
    const auto type = weight.scalar_type();
    return weight.device().is_cpu() && weight.is_contiguous() && weight.dim() == 2 &&
           (type == torch::kFloat || type == torch::kBFloat16 || type == torch::kDouble);
}

Tensor few_rows_product(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                        [[maybe_unused]] Bf16Instructions instructions) {
    const std::int64_t depth = weight.size(1);
    const std::int64_t columns = weight.size(0);
    const Tensor rows = x.reshape({-1, depth});
    Tensor out = torch::empty({rows.size(0), columns}, rows.options());
    const std::int64_t blocks = (columns + kWeightRows - 1) / kWeightRows;
    const std::int64_t grain = grain_of(kWeightRows * depth);
    const auto multiply = [&]<typename T>() {
        const Tensor wide = in_blocks(rows, kLanes, wide_type(rows.scalar_type()));
        const Product<T> product{elements<Wide<T>>(wide),
                                 elements<T>(weight),
                                 bias ? elements<T>(*bias) : nullptr,
                                 mutable_elements<T>(out),
                                 rows.size(0),
                                 columns,
                                 depth,
                                 wide.size(1)};
        in_parallel(blocks, grain,
                    [&product](std::int64_t begin, std::int64_t end) { run_widest<Product<T>>(&product, begin, end); });
    };
#ifdef DISTILLD_BF16
    const auto bits = [](const Tensor& tensor) {
        return reinterpret_cast<const std::uint16_t*>(elements<c10::BFloat16>(tensor));
    };
    if (rows.scalar_type() == torch::kBFloat16 && instructions != Bf16Instructions::none) {
        const Bf16Sides sides{bits(weight),
                              bias ? bits(*bias) : nullptr,
                              reinterpret_cast<std::uint16_t*>(mutable_elements<c10::BFloat16>(out)),
                              rows.size(0),
                              columns,
                              depth};
        if (instructions == Bf16Instructions::tiles) {
            const Tensor lines = rows.contiguous();
            const std::int64_t width = TileProduct::whole_blocks(rows.size(0));
            std::vector<Pair> turned(static_cast<std::size_t>(TileProduct::whole_blocks(depth) / 2 * width));
            pair_columns({bits(lines), depth, rows.size(0), depth}, width, TileProduct::whole_blocks(depth),
                         turned.data(), width);
            const TileProduct product{sides, turned.data(), width};
            in_parallel((columns + kBlock - 1) / kBlock, grain_of(kBlock * depth),
                        [&product](std::int64_t begin, std::int64_t end) { product.multiply(begin, end); });
        } else {
            const Tensor padded = in_blocks(rows, kBlock, torch::kBFloat16);
            const DotProduct product{sides, bits(padded), padded.size(1)};
            in_parallel(blocks, grain,
                        [&product](std::int64_t begin, std::int64_t end) { multiply_blocks(product, begin, end); });
        }
    } else {
        with_element_type(rows.scalar_type(), multiply);
    }
#else
    with_element_type(rows.scalar_type(), multiply);
#endif
    std::vector<std::int64_t> sizes(x.sizes().begin(), x.sizes().end());
    sizes.back() = columns;
    return out.view(sizes);
}

}  // namespace distilld::kernels

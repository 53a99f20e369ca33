#include "models/kernels/bf16_blocks.hpp"

#ifdef DISTILLD_BF16

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#define DISTILLD_AMX [[gnu::target("arch=x86-64-v4,avx512bf16,amx-tile,amx-bf16")]]

namespace distilld::kernels {
namespace {

constexpr std::int64_t kHalf = kBlock / 2;

bool has_tiles() {
    constexpr unsigned kAmxBf16 = 1U << 22;
    constexpr unsigned kAmxTile = 1U << 24;
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxBf16) == 0 || (d & kAmxTile) == 0) {
        return false;
    }
    // Linux gives a process the tiles' registers when it asks for them: ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA.
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}

/// The operand of LDTILECFG.
struct alignas(64) TileConfiguration {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::array<std::uint8_t, 14> reserved{};
    std::array<std::uint16_t, 16> bytes_per_row{};
    std::array<std::uint8_t, 16> rows{};
};

/// Tiles 0 to 3 are a block of `out`, 4 and 5 of the left operand, 6 and 7 of the right one.
DISTILLD_AMX void multiply_tiles(const Bf16Products::Operands& with) {
    const auto left_bytes = static_cast<std::size_t>(with.left_stride) * sizeof(std::uint16_t);
    const auto right_bytes = static_cast<std::size_t>(with.right_stride) * sizeof(Pair);
    const auto out_bytes = static_cast<std::size_t>(with.out_stride) * sizeof(float);
    for (std::int64_t row = 0; row < with.rows; row += kBlock) {
        for (std::int64_t column = 0; column < with.columns; column += kBlock) {
            float* upper = with.out + row * with.out_stride + column;
            float* lower = upper + kHalf * with.out_stride;
            if (with.adds) {
                _tile_loadd(0, upper, out_bytes);
                _tile_loadd(1, upper + kHalf, out_bytes);
                _tile_loadd(2, lower, out_bytes);
                _tile_loadd(3, lower + kHalf, out_bytes);
            } else {
                _tile_zero(0);
                _tile_zero(1);
                _tile_zero(2);
                _tile_zero(3);
            }
            const std::uint16_t* left = with.left + row * with.left_stride;
            const Pair* right = with.right + column;
            for (std::int64_t depth = 0; depth < with.depth; depth += kBlock) {
                _tile_loadd(4, left + depth, left_bytes);
                _tile_loadd(6, right, right_bytes);
                _tile_dpbf16ps(0, 4, 6);
                _tile_loadd(7, right + kHalf, right_bytes);
                _tile_dpbf16ps(1, 4, 7);
                _tile_loadd(5, left + depth + kHalf * with.left_stride, left_bytes);
                _tile_dpbf16ps(2, 5, 6);
                _tile_dpbf16ps(3, 5, 7);
                right += kHalf * with.right_stride;
            }
            _tile_stored(0, upper, out_bytes);
            _tile_stored(1, upper + kHalf, out_bytes);
            _tile_stored(2, lower, out_bytes);
            _tile_stored(3, lower + kHalf, out_bytes);
        }
    }
}

DISTILLD_AMX void configure_tiles() {
    TileConfiguration tiles;
    for (std::size_t tile = 0; tile < 8; ++tile) {
        tiles.rows[tile] = kHalf;
        tiles.bytes_per_row[tile] = 64;
    }
    _tile_loadconfig(&tiles);
}

DISTILLD_AMX void release_tiles() {
    _tile_release();
}

/// 8 rows by 32 columns at a time: 16 sums, which hide the latency of a dot product.
DISTILLD_BF16 void multiply_dots(const Bf16Products::Operands& with) {
    constexpr std::int64_t kRows = 8;
    for (std::int64_t row = 0; row < with.rows; row += kRows) {
        for (std::int64_t column = 0; column < with.columns; column += kBlock) {
            float* out = with.out + row * with.out_stride + column;
            __m512 sums[kRows][2];
            for (std::int64_t i = 0; i < kRows; ++i) {
                sums[i][0] = with.adds ? _mm512_loadu_ps(out + i * with.out_stride) : _mm512_setzero_ps();
                sums[i][1] = with.adds ? _mm512_loadu_ps(out + i * with.out_stride + kHalf) : _mm512_setzero_ps();
            }
            const std::uint16_t* left = with.left + row * with.left_stride;
            for (std::int64_t pair = 0; pair < with.depth / 2; ++pair) {
                const Pair* right = with.right + pair * with.right_stride + column;
                const auto first = reinterpret_cast<__m512bh>(_mm512_loadu_si512(right));
                const auto second = reinterpret_cast<__m512bh>(_mm512_loadu_si512(right + kHalf));
                for (std::int64_t i = 0; i < kRows; ++i) {
                    int both = 0;
                    std::memcpy(&both, left + i * with.left_stride + 2 * pair, sizeof(both));
                    const auto factor = reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
                    sums[i][0] = _mm512_dpbf16_ps(sums[i][0], factor, first);
                    sums[i][1] = _mm512_dpbf16_ps(sums[i][1], factor, second);
                }
            }
            for (std::int64_t i = 0; i < kRows; ++i) {
                _mm512_storeu_ps(out + i * with.out_stride, sums[i][0]);
                _mm512_storeu_ps(out + i * with.out_stride + kHalf, sums[i][1]);
            }
        }
    }
}

/// Transposes 16 × 16 numbers of 32 bits: swaps halves of neighbouring rows, in blocks of 1, 2, 4 and 8.
DISTILLD_BF16 DISTILLD_INLINE void transpose(__m512i (&rows)[kHalf]) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#pragma GCC unroll 4
    for (int width = 1; width < kHalf; width *= 2) {
        const __m512i step = _mm512_set1_epi32(width);
        const __m512i other = _mm512_set1_epi32(kHalf);
        const __mmask16 upper = _mm512_test_epi32_mask(lane, step);
        const __m512i low = _mm512_mask_add_epi32(lane, upper, _mm512_sub_epi32(lane, step), other);
        const __m512i high = _mm512_mask_add_epi32(_mm512_add_epi32(lane, step), upper, lane, other);
#pragma GCC unroll 16
        for (int row = 0; row < kHalf; ++row) {
            if ((row & width) == 0) {
                const __m512i a = rows[row];
                const __m512i b = rows[row + width];
                rows[row] = _mm512_permutex2var_epi32(a, low, b);
                rows[row + width] = _mm512_permutex2var_epi32(a, high, b);
            }
        }
    }
}

}  // namespace

Bf16Instructions bf16_instructions() {
    static const Bf16Instructions best = [] {
        if (!__builtin_cpu_supports("x86-64-v4") || !__builtin_cpu_supports("avx512bf16")) {
            return Bf16Instructions::none;
        }
        return has_tiles() ? Bf16Instructions::tiles : Bf16Instructions::dots;
    }();
    return best;
}

Bf16Products::Bf16Products(Bf16Instructions instructions) : instructions_(instructions) {
    if (instructions_ == Bf16Instructions::tiles) {
        configure_tiles();
    }
}

Bf16Products::~Bf16Products() {
    if (instructions_ == Bf16Instructions::tiles) {
        release_tiles();
    }
}

void Bf16Products::multiply(const Operands& operands) const {
    instructions_ == Bf16Instructions::tiles ? multiply_tiles(operands) : multiply_dots(operands);
}

void copy_padded(const Bf16Rows& from, std::int64_t height, std::int64_t width, std::uint16_t* out) {
    for (std::int64_t row = 0; row < height; ++row) {
        const std::int64_t size = row < from.rows ? from.size : 0;
        std::uint16_t* to = out + row * width;
        std::copy_n(from.data + (size == 0 ? 0 : row * from.stride), size, to);
        std::fill(to + size, to + width, std::uint16_t{0});
    }
}

void pair_rows(const Bf16Rows& from, std::int64_t height, std::int64_t width, Pair* out) {
    for (std::int64_t row = 0; row < height; row += 2) {
        const std::uint16_t* lower = from.data + row * from.stride;
        const std::uint16_t* upper = lower + from.stride;
        Pair* to = out + row / 2 * width;
        const std::int64_t both = row + 1 < from.rows ? from.size : 0;
        for (std::int64_t i = 0; i < both; ++i) {
            to[i] = Pair{lower[i]} | Pair{upper[i]} << 16U;
        }
        const std::int64_t one = row + 1 == from.rows ? from.size : both;
        for (std::int64_t i = both; i < one; ++i) {
            to[i] = lower[i];
        }
        std::fill(to + one, to + width, Pair{0});
    }
}

void pair_columns(const Bf16Rows& from, std::int64_t height, std::int64_t width, Pair* out, std::int64_t out_stride) {
    for (std::int64_t row = 0; row < height; row += kHalf) {
        for (std::int64_t column = 0; column < width; column += kBlock) {
            const std::int64_t left = std::clamp<std::int64_t>(from.size - column, 0, kBlock);
            const auto mask = static_cast<__mmask32>((std::uint64_t{1} << static_cast<unsigned>(left)) - 1);
            __m512i rows[kHalf];
#pragma GCC unroll 16
            for (std::int64_t i = 0; i < kHalf; ++i) {
                rows[i] = row + i < from.rows
                              ? _mm512_maskz_loadu_epi16(mask, from.data + (row + i) * from.stride + column)
                              : _mm512_setzero_si512();
            }
            transpose(rows);
#pragma GCC unroll 16
            for (std::int64_t i = 0; i < kHalf; ++i) {
                _mm512_storeu_si512(out + (column / 2 + i) * out_stride + row, rows[i]);
            }
        }
    }
}

void split_pairs(const Pair* from, std::int64_t from_stride, std::int64_t height, std::int64_t width,
                 std::uint16_t* out, std::int64_t out_stride) {
    for (std::int64_t row = 0; row < height; ++row) {
        const Pair* pairs = from + row * from_stride;
        std::uint16_t* lower = out + 2 * row * out_stride;
        std::uint16_t* upper = lower + out_stride;
        for (std::int64_t i = 0; i < width; ++i) {
            lower[i] = static_cast<std::uint16_t>(pairs[i]);
            upper[i] = static_cast<std::uint16_t>(pairs[i] >> 16U);
        }
    }
}

void write_transposed(const float* from, std::int64_t from_stride, const float* factors, std::int64_t rows,
                      std::int64_t columns, std::uint16_t* out, std::int64_t out_stride) {
    for (std::int64_t column = 0; column < columns; column += kHalf) {
        const __m512 factor = _mm512_loadu_ps(factors + column);
        for (std::int64_t row = 0; row < rows; row += kHalf) {
            __m512i block[kHalf];
#pragma GCC unroll 16
            for (std::int64_t i = 0; i < kHalf; ++i) {
                const __m512 values = _mm512_loadu_ps(from + (row + i) * from_stride + column);
                block[i] = _mm512_castps_si512(_mm512_mul_ps(values, factor));
            }
            transpose(block);
            const std::int64_t left = std::min(kHalf, rows - row);
            const auto mask = static_cast<__mmask16>((1U << static_cast<unsigned>(left)) - 1);
            const std::int64_t written = std::min(kHalf, columns - column);
            for (std::int64_t i = 0; i < written; ++i) {
                const auto narrow = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_castsi512_ps(block[i])));
                _mm256_mask_storeu_epi16(out + (column + i) * out_stride + row, mask, narrow);
            }
        }
    }
}

}  // namespace distilld::kernels

#else

namespace distilld::kernels {

Bf16Instructions bf16_instructions() {
    return Bf16Instructions::none;
}

}  // namespace distilld::kernels

#endif

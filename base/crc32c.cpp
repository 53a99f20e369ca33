#include "base/crc32c.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace distilld {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78U;  // reflected

using Table = std::array<std::uint32_t, 256>;

/// tables[j][b]: the effect of byte b on the register when j more bytes follow it.
constexpr std::array<Table, 8> make_tables() {
    std::array<Table, 8> tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t value = byte;
        for (int bit = 0; bit < 8; ++bit) {
            value = (value >> 1U) ^ ((value & 1U) != 0 ? kPolynomial : 0U);
        }
        tables[0][byte] = value;
    }
    for (std::size_t j = 1; j < tables.size(); ++j) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t before = tables[j - 1][byte];
            tables[j][byte] = (before >> 8U) ^ tables[0][before & 0xFFU];
        }
    }
    return tables;
}

constexpr std::array<Table, 8> kTables = make_tables();

std::uint64_t load(const std::byte* bytes) noexcept {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return value;
}

std::uint32_t step(std::uint32_t state, std::byte byte) noexcept {
    return (state >> 8U) ^ kTables[0][(state ^ static_cast<std::uint32_t>(byte)) & 0xFFU];
}

#if defined(__x86_64__)

/// Bytes of a block. Three blocks are summed in parallel: an instruction takes three cycles, but one can start in each.
constexpr std::size_t kBlockBytes = 1024;

/// The effect of `kBlockBytes` zeros on a register, as one table for each of its bytes.
constexpr std::array<Table, 4> make_shift_tables() {
    std::array<Table, 4> shift{};
    std::array<std::uint32_t, 32> images{};  // the effect on each single bit
    for (std::size_t bit = 0; bit < 32; ++bit) {
        std::uint32_t value = std::uint32_t{1} << bit;
        for (std::size_t i = 0; i < kBlockBytes; ++i) {
            value = (value >> 8U) ^ kTables[0][value & 0xFFU];
        }
        images[bit] = value;
    }
    for (std::size_t place = 0; place < 4; ++place) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            for (std::size_t bit = 0; bit < 8; ++bit) {
                if ((byte >> bit & 1U) != 0) {
                    shift[place][byte] ^= images[place * 8 + bit];
                }
            }
        }
    }
    return shift;
}

constexpr std::array<Table, 4> kShift = make_shift_tables();

std::uint32_t shifted(std::uint64_t state) noexcept {
    return kShift[0][state & 0xFFU] ^ kShift[1][state >> 8U & 0xFFU] ^ kShift[2][state >> 16U & 0xFFU] ^
           kShift[3][state >> 24U & 0xFFU];
}

__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::span<const std::byte> bytes,
                                                               std::uint32_t crc) noexcept {
    std::uint64_t state = ~crc;
    const std::byte* at = bytes.data();
    std::size_t left = bytes.size();
    while (left >= 3 * kBlockBytes) {
        std::uint64_t second = 0;
        std::uint64_t third = 0;
        for (std::size_t i = 0; i < kBlockBytes; i += 8) {
            state = _mm_crc32_u64(state, load(at + i));
            second = _mm_crc32_u64(second, load(at + kBlockBytes + i));
            third = _mm_crc32_u64(third, load(at + 2 * kBlockBytes + i));
        }
        state = shifted(shifted(state) ^ second) ^ third;
        at += 3 * kBlockBytes;
        left -= 3 * kBlockBytes;
    }
    for (; left >= 8; left -= 8, at += 8) {
        state = _mm_crc32_u64(state, load(at));
    }
    auto rest = static_cast<std::uint32_t>(state);
    for (; left > 0; --left, ++at) {
        rest = step(rest, *at);
    }
    return ~rest;
}

#endif

}  // namespace

std::uint32_t crc32c_by_tables(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
    std::uint32_t state = ~crc;
    const std::byte* at = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) {
        const std::uint64_t word = load(at) ^ state;
        state = 0;
        for (std::size_t j = 0; j < 8; ++j) {
            state ^= kTables[7 - j][word >> (8 * j) & 0xFFU];
        }
    }
    for (; left > 0; --left, ++at) {
        state = step(state, *at);
    }
    return ~state;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) noexcept {
#if defined(__x86_64__)
    static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
    if (has_instruction) {
        return by_instruction(bytes, crc);
    }
#endif
    return crc32c_by_tables(bytes, crc);
}

}  // namespace distilld

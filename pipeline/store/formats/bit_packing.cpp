#include "pipeline/store/formats/bit_packing.hpp"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace distilld {
namespace {

#if defined(__x86_64__)

/// A number and the bits before it in its first byte must fit into 32 bits.
constexpr std::uint32_t kMaxVectorBits = 25;

struct Packed {
    std::span<const std::byte> bytes;
    std::span<std::int32_t> numbers;
    std::uint32_t bits;
    std::uint32_t mask;
    std::size_t second;
    const std::uint8_t* places;
    const std::uint32_t* shifts;
};

/// Reads groups of eight while 16 bytes can be loaded for each half; returns how many numbers it read.
__attribute__((target("avx2"))) std::size_t unpack_by_eight(const Packed& packed) noexcept {
    const __m256i places = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(packed.places));
    const __m256i shifts = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(packed.shifts));
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(packed.mask));
    const std::byte* at = packed.bytes.data();
    std::size_t left = packed.bytes.size();
    std::size_t i = 0;
    for (; i + 8 <= packed.numbers.size() && left >= packed.second + 16; i += 8) {
        const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
        const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + packed.second));
        const __m256i words = _mm256_shuffle_epi8(_mm256_set_m128i(high, low), places);
        const __m256i numbers = _mm256_and_si256(_mm256_srlv_epi32(words, shifts), mask);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(packed.numbers.data() + i), numbers);
        at += packed.bits;
        left -= packed.bits;
    }
    return i;
}

#endif

}  // namespace

void append_packed(std::vector<std::byte>& bytes, std::span<const std::int32_t> numbers, std::uint32_t bits) {
    std::uint64_t pending = 0;
    std::uint32_t pending_bits = 0;
    for (const std::int32_t number : numbers) {
        pending |= std::uint64_t{static_cast<std::uint32_t>(number)} << pending_bits;
        for (pending_bits += bits; pending_bits >= 8; pending_bits -= 8) {
            bytes.push_back(static_cast<std::byte>(pending));
            pending >>= 8U;
        }
    }
    if (pending_bits > 0) {
        bytes.push_back(static_cast<std::byte>(pending));
    }
}

BitUnpacker::BitUnpacker(std::uint32_t bits) noexcept
    : bits_(bits), mask_(static_cast<std::uint32_t>((std::uint64_t{1} << bits) - 1)) {
#if defined(__x86_64__)
    by_eight_ = bits <= kMaxVectorBits && __builtin_cpu_supports("avx2") != 0;
#endif
    second_ = 4 * bits / 8;
    for (std::uint32_t i = 0; i < 8; ++i) {
        const std::uint32_t bit = i * bits - (i < 4 ? 0 : static_cast<std::uint32_t>(second_) * 8);
        shifts_[i] = bit % 8;
        for (std::uint32_t byte = 0; byte < 4; ++byte) {
            bytes_[i * 4 + byte] = static_cast<std::uint8_t>((bit / 8 + byte) % 16);
        }
    }
}

void BitUnpacker::unpack(std::span<const std::byte> bytes, std::span<std::int32_t> numbers) const noexcept {
    std::size_t i = 0;
#if defined(__x86_64__)
    if (by_eight_) {
        i = unpack_by_eight({bytes, numbers, bits_, mask_, second_, bytes_.data(), shifts_.data()});
    }
#endif
    // Each number lies within eight bytes from its first one: at most 7 + 32 bits.
    for (; i < numbers.size(); ++i) {
        const std::size_t bit = i * bits_;
        const std::size_t left = bytes.size() - (bit >> 3U);
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + (bit >> 3U), left < sizeof word ? left : sizeof word);
        numbers[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(word >> (bit & 7U)) & mask_);
    }
}

}  // namespace distilld

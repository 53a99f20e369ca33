#include "pipeline/store/bit_packing.hpp"

#include <algorithm>
#include <cstring>

namespace distilld {

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

std::uint32_t unpack(std::span<const std::byte> bytes, std::uint32_t bits, std::span<std::int32_t> numbers) noexcept {
    const auto mask = static_cast<std::uint32_t>((std::uint64_t{1} << bits) - 1);
    // Each number lies in the eight bytes that begin with its first: 7 + 32 bits at most.
    const std::size_t whole =
        bytes.size() < 8 ? 0 : std::min<std::size_t>(numbers.size(), ((bytes.size() - 8) * 8 + 7) / bits + 1);
    std::uint32_t max = 0;
    std::size_t i = 0;
    for (; i < whole; ++i) {
        const std::size_t bit = i * bits;
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + (bit >> 3U), sizeof word);
        const auto number = static_cast<std::uint32_t>(word >> (bit & 7U)) & mask;
        numbers[i] = static_cast<std::int32_t>(number);
        max = std::max(max, number);
    }
    for (; i < numbers.size(); ++i) {
        const std::size_t bit = i * bits;
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data() + (bit >> 3U), std::min<std::size_t>(8, bytes.size() - (bit >> 3U)));
        const auto number = static_cast<std::uint32_t>(word >> (bit & 7U)) & mask;
        numbers[i] = static_cast<std::int32_t>(number);
        max = std::max(max, number);
    }
    return max;
}

}  // namespace distilld

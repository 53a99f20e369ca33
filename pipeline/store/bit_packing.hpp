#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace distilld {

/// Bytes of `count` numbers of `bits` bits.
[[nodiscard]] constexpr std::uint64_t packed_bytes(std::uint64_t count, std::uint32_t bits) noexcept {
    return (count * bits + 7) / 8;
}

/// Appends packed_bytes(): number i in the bits [i·bits, (i + 1)·bits) of the little-endian string of bits, the last
/// byte filled up with zeros. `bits` is 1 to 32, and the numbers have no more.
void append_packed(std::vector<std::byte>& bytes, std::span<const std::int32_t> numbers, std::uint32_t bits);

/// Fills `numbers` out of the packed_bytes() at the front of `bytes`, which may go on behind them. The largest of them,
/// as an unsigned number.
std::uint32_t unpack(std::span<const std::byte> bytes, std::uint32_t bits, std::span<std::int32_t> numbers) noexcept;

}  // namespace distilld

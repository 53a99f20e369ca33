#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace distilld {

/// Bytes of `count` numbers of `bits` bits.
[[nodiscard]] constexpr std::uint64_t packed_bytes(std::uint64_t count, std::uint32_t bits) noexcept {
    return (count * bits + 7) / 8;
}

/// Appends packed_bytes() bytes: number i in the bits [i·bits, (i + 1)·bits) of a little-endian bit string, with the
/// last byte zero-padded. `bits` is 1 to 32, and the numbers must fit.
void append_packed(std::vector<std::byte>& bytes, std::span<const std::int32_t> numbers, std::uint32_t bits);

/// Reads numbers of `bits` bits, with AVX2 if the processor has it. Immutable, any thread.
class BitUnpacker {
  public:
    explicit BitUnpacker(std::uint32_t bits) noexcept;

    /// Fills `numbers` from the packed_bytes() at the front of `bytes`, which may be longer.
    void unpack(std::span<const std::byte> bytes, std::span<std::int32_t> numbers) const noexcept;

    [[nodiscard]] std::uint32_t bits() const noexcept { return bits_; }

  private:
    std::uint32_t bits_;
    std::uint32_t mask_;
    bool by_eight_ = false;
    // Eight numbers lie in `bits` bytes. For each: its four bytes among the 16 of its half, and the bits to shift them
    // by. The second half begins at byte `second_`.
    std::size_t second_ = 0;
    std::array<std::uint8_t, 32> bytes_{};
    std::array<std::uint32_t, 8> shifts_{};
};

}  // namespace distilld

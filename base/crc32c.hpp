#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace distilld {

/// CRC-32C (Castagnoli; RFC 3720, appendix B.4) of bytes in pieces: `crc` is the result of the previous call, at first
/// 0. Uses the processor's instruction if there is one. Any thread.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;

/// The same without the instruction.
[[nodiscard]] std::uint32_t crc32c_by_tables(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept;

}  // namespace distilld

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/files/mapped_file.hpp"

namespace distilld {

/// Immutable bytes, in memory or in a mapped file.
struct ColumnBytes {
    std::vector<std::byte> memory;
    std::optional<MappedFile> file;
    std::uint32_t sum = 0;  ///< CRC-32C of a file
};

/// ColumnBytes as values of a trivially copyable type. Any thread.
template <class T>
class ColumnArray {
  public:
    ColumnArray() = default;
    explicit ColumnArray(ColumnBytes bytes) : bytes_(std::move(bytes)) {}

    [[nodiscard]] std::span<const T> all() const noexcept {
        const auto bytes = bytes_.file ? bytes_.file->bytes() : std::span<const std::byte>(bytes_.memory);
        return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
    }
    [[nodiscard]] std::uint64_t size() const noexcept { return all().size(); }
    [[nodiscard]] bool empty() const noexcept { return all().empty(); }
    [[nodiscard]] std::uint32_t sum() const noexcept { return bytes_.sum; }

  private:
    ColumnBytes bytes_;
};

}  // namespace distilld

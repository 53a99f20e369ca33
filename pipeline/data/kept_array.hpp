#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/mapped_file.hpp"

namespace distilld {

/// Bytes that do not change any more: in memory, or a mapped file.
struct KeptBytes {
    std::vector<std::byte> memory;
    std::optional<MappedFile> file;
    std::uint32_t sum = 0;  ///< CRC-32C of a file
};

/// KeptBytes as values of a type that is copied byte by byte. Any thread.
template <class T>
class KeptArray {
  public:
    KeptArray() = default;
    explicit KeptArray(KeptBytes bytes) : bytes_(std::move(bytes)) {}

    [[nodiscard]] std::span<const T> all() const noexcept {
        const auto bytes = bytes_.file ? bytes_.file->bytes() : std::span<const std::byte>(bytes_.memory);
        return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
    }
    [[nodiscard]] std::uint64_t size() const noexcept { return all().size(); }
    [[nodiscard]] bool empty() const noexcept { return all().empty(); }
    [[nodiscard]] std::uint32_t sum() const noexcept { return bytes_.sum; }

  private:
    KeptBytes bytes_;
};

}  // namespace distilld

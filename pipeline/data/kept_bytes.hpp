#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "base/mapped_file.hpp"

namespace distilld {

/// Bytes that do not change any more: in memory, or a mapped file. Such a file has a CRC-32C of every block of
/// kBlockBytes behind its bytes, which is looked at when the block is first read, so that neither opening it takes time
/// by its size nor damage goes unseen. Any thread.
class KeptBytes {
  public:
    /// Small enough that a row which is read from anywhere brings in little else.
    static constexpr std::size_t kBlockBytes = 64U << 10;

    [[nodiscard]] static std::unique_ptr<const KeptBytes> in_memory(std::vector<std::byte> bytes);

    /// Maps a file of `size` bytes and their checksums, which have the checksum `sum` themselves; `lies_in` is the
    /// folder that it has, or soon has, for errors. A file of another size, or with other checksums, is an error.
    [[nodiscard]] static Result<std::unique_ptr<const KeptBytes>> map(const std::filesystem::path& file,
                                                                      std::uint64_t size, std::uint32_t sum,
                                                                      const std::filesystem::path& lies_in);

    /// Of so many bytes.
    [[nodiscard]] static constexpr std::uint64_t blocks_of(std::uint64_t size) {
        return size / kBlockBytes + (size % kBlockBytes != 0 ? 1 : 0);
    }

    [[nodiscard]] bool is_mapped() const noexcept { return map_.has_value(); }

    /// As they are.
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

    /// Some of them, for reading. Throws ErrorException where they are not what was written; the folder is made
    /// unreadable then, so that the next start reads the data itself.
    [[nodiscard]] std::span<const std::byte> part(std::uint64_t first, std::uint64_t count) const;

  private:
    KeptBytes() = default;
    [[nodiscard]] bool is_good(std::uint64_t block) const;
    [[noreturn]] void refuse(std::uint64_t block) const;

    std::vector<std::byte> own_;
    std::optional<MappedFile> map_;
    std::span<const std::byte> bytes_;
    std::span<const std::byte> sums_;  ///< of the blocks, four bytes each; empty: in memory
    mutable std::vector<std::atomic<bool>> checked_;
    std::filesystem::path file_;  ///< where it lies in the end
};

/// The file by which a folder of tokens shows that it is whole.
inline constexpr const char* kTokenIndex = "index.json";

/// KeptBytes as values of a type that is copied byte by byte.
template <class T>
class KeptArray {
  public:
    KeptArray() = default;
    explicit KeptArray(std::unique_ptr<const KeptBytes> bytes) : bytes_(std::move(bytes)) {}

    [[nodiscard]] bool is_there() const noexcept { return bytes_ != nullptr; }
    [[nodiscard]] bool is_mapped() const noexcept { return bytes_ != nullptr && bytes_->is_mapped(); }
    [[nodiscard]] std::uint64_t size() const noexcept { return all().size(); }

    /// As they are: for what was just written or checked.
    [[nodiscard]] std::span<const T> all() const noexcept {
        return bytes_ == nullptr ? std::span<const T>() : values(bytes_->bytes());
    }

    /// See KeptBytes::part().
    [[nodiscard]] std::span<const T> part(std::uint64_t first, std::uint64_t count) const {
        return values(bytes_->part(first * sizeof(T), count * sizeof(T)));
    }

  private:
    static std::span<const T> values(std::span<const std::byte> bytes) {
        return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
    }

    std::unique_ptr<const KeptBytes> bytes_;
};

}  // namespace distilld

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/error.hpp"
#include "pipeline/data/kept_bytes.hpp"
#include "pipeline/data/token_draft.hpp"

namespace distilld {

/// What was appended, whole.
struct GrownBytes {
    std::unique_ptr<const KeptBytes> bytes;
    std::uint32_t sum = 0;  ///< of a file's checksums, see KeptBytes::map()
};

/// Bytes that are appended to, in a file of a draft as long as it takes files, else in memory: a draft that is given up
/// has read back what it has. Holds a buffer of 1 MiB beside a file. One thread. Errors are those of reading back.
class GrowingBytes {
  public:
    /// `draft`, which must outlive this, may be null; `name` is the file's.
    GrowingBytes(TokenDraft* draft, std::string name);
    GrowingBytes(GrowingBytes&& other) noexcept = default;
    GrowingBytes& operator=(GrowingBytes&&) = delete;

    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    /// What memory has room for.
    [[nodiscard]] std::uint64_t capacity() const noexcept { return memory_.capacity(); }
    [[nodiscard]] bool is_in_memory() const noexcept { return !file_; }
    void reserve(std::uint64_t bytes) { memory_.reserve(bytes); }

    [[nodiscard]] Result<void> append(std::span<const std::byte> bytes);

    /// What `other` holds now.
    [[nodiscard]] Result<void> append_all_of(const GrowingBytes& other);

    /// Call once, last.
    [[nodiscard]] Result<GrownBytes> finish();

  private:
    [[nodiscard]] Result<void> settle();
    [[nodiscard]] bool make_file();
    [[nodiscard]] bool flush(bool whole);
    [[nodiscard]] bool write(std::span<const std::byte> bytes);
    [[nodiscard]] Result<void> take_back();
    [[nodiscard]] Result<void> read_at(std::uint64_t offset, std::span<std::byte> into) const;
    [[nodiscard]] Result<GrownBytes> finish_file();

    TokenDraft* draft_;
    std::string name_;
    Descriptor file_;
    std::uint64_t size_ = 0;
    std::uint64_t flushed_ = 0;      ///< bytes that are in the file
    std::vector<std::byte> memory_;  ///< all of them, or those that are not in the file yet
    std::vector<std::uint32_t> sums_;
};

}  // namespace distilld

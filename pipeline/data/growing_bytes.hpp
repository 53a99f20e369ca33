#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/error.hpp"
#include "pipeline/data/kept_array.hpp"
#include "pipeline/data/token_draft.hpp"

namespace distilld {

/// Bytes that are appended to: in memory, or in a file of a draft behind a buffer of 1 MiB. One thread. Errors are the
/// draft's.
class GrowingBytes {
  public:
    /// `draft`, which must outlive this, may be null; `name` is the file's.
    GrowingBytes(TokenDraft* draft, std::string name);

    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    /// What memory has room for.
    [[nodiscard]] std::uint64_t capacity() const noexcept { return memory_.capacity(); }
    void reserve(std::uint64_t bytes) { memory_.reserve(bytes); }

    [[nodiscard]] Result<void> append(std::span<const std::byte> bytes);

    /// What `other`, of the same draft, holds now.
    [[nodiscard]] Result<void> append_all_of(GrowingBytes& other);

    /// Call once, last.
    [[nodiscard]] Result<KeptBytes> finish();

  private:
    [[nodiscard]] Result<void> flush();

    TokenDraft* draft_;
    std::string name_;
    Descriptor file_;
    std::uint64_t size_ = 0;
    std::uint32_t sum_ = 0;          ///< of what is in the file
    std::vector<std::byte> memory_;  ///< all of them, or those that are not in the file yet
};

}  // namespace distilld

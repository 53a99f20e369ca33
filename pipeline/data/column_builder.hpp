#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/files/descriptor.hpp"
#include "pipeline/data/column.hpp"
#include "pipeline/data/token_draft.hpp"

namespace distilld {

/// Collects bytes in memory, or in a file of a draft through a buffer of 1 MiB. One thread. Errors are those of the
/// draft.
class ColumnBuilder {
  public:
    /// `draft` may be null, else it must outlive this; `name` is the name of the file.
    ColumnBuilder(TokenDraft* draft, std::string name);

    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    /// Bytes that fit into the allocated memory.
    [[nodiscard]] std::uint64_t capacity() const noexcept { return memory_.capacity(); }
    void reserve(std::uint64_t bytes) { memory_.reserve(bytes); }

    [[nodiscard]] Result<void> append(std::span<const std::byte> bytes);

    /// Appends the current contents of `other`, which is of the same draft.
    [[nodiscard]] Result<void> append_all_of(ColumnBuilder& other);

    /// Call once, last.
    [[nodiscard]] Result<ColumnBytes> finish();

  private:
    [[nodiscard]] Result<void> flush();

    TokenDraft* draft_;
    std::string name_;
    Descriptor file_;
    std::uint64_t size_ = 0;
    std::uint32_t sum_ = 0;          ///< of the bytes in the file
    std::vector<std::byte> memory_;  ///< all bytes, or those not yet in the file
};

}  // namespace distilld

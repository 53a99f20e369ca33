#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

#include "base/error.hpp"

namespace distilld {

/// A file's bytes, mapped read-only and shared, so that all processes of the machine share one copy. For files that no
/// longer change: reading a part that was truncated ends the process. Moves, does not copy; any thread.
class MappedFile {
  public:
    /// The error names the file. An empty file has no bytes.
    static Result<MappedFile> open(const std::filesystem::path& path);

    MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
    MappedFile& operator=(MappedFile&& other) noexcept {
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();

    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

  private:
    explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

    std::span<const std::byte> bytes_;
};

}  // namespace distilld

#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/error.hpp"

namespace distilld::sinks {

/// A file that grows at its end, by whole pieces. Opened for this process alone. Errors name the file and the reason.
class AppendFile {
  public:
    /// Opens the file, or makes an empty one; its folder is made. What is no regular file, or is another process's, is
    /// refused.
    static Result<AppendFile> open(const std::filesystem::path& path);

    /// All of `bytes`, or nothing: of a piece that did not fit, the beginning is taken away again.
    Result<void> append(std::string_view bytes);
    /// Cuts what lies behind the first `size` bytes.
    Result<void> cut(std::uint64_t size);

    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  private:
    AppendFile(std::filesystem::path path, Descriptor file, std::uint64_t size);

    std::filesystem::path path_;
    Descriptor file_;
    std::uint64_t size_ = 0;
    bool torn_ = false;  ///< behind size_ may lie what could not be taken away
};

}  // namespace distilld::sinks

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/files/descriptor.hpp"
#include "server/sinks/sink.hpp"

namespace distilld::sinks {

/// A file that grows by whole pieces. Locked for this process. Errors name the file and the reason.
class AppendFile {
  public:
    /// Opens or creates the file, and creates its folder. Anything but a regular file, or a file locked by another
    /// process, is refused. With `replaces`, a copy takes the place of a locked file: whoever holds the lock writes to
    /// the file that nobody sees any more.
    static Result<AppendFile> open(const std::filesystem::path& path, bool replaces = false);

    /// Appends all of `bytes` or nothing: a partial write is removed again.
    Result<void> append(std::string_view bytes);
    /// Truncates the file to `size` bytes.
    Result<void> cut(std::uint64_t size);

    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  private:
    AppendFile(std::filesystem::path path, Descriptor file, std::uint64_t size);

    std::filesystem::path path_;
    Descriptor file_;
    std::uint64_t size_ = 0;
    bool torn_ = false;  ///< bytes behind size_ that could not be removed
};

/// A sink that writes to a file synchronously.
class FileSink : public Sink {
  public:
    /// `field`: the prefix of messages, "/metrics/jsonl_file: ".
    explicit FileSink(std::string field) : field_(std::move(field)) {}

    boost::asio::awaitable<WriteResult> write(const std::vector<SinkItem>& items) final {
        if (const Result<void> done = write_now(items); !done) {
            co_return SinkFailure{field_ + done.error().message};
        }
        co_return Written();
    }

  private:
    /// See Sink::write; errors name the file.
    virtual Result<void> write_now(const std::vector<SinkItem>& items) = 0;

    std::string field_;
};

}  // namespace distilld::sinks

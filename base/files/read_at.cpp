#include "base/files/read_at.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace distilld {

std::size_t read_at(int file, std::span<std::byte> target, std::uint64_t offset) {
    constexpr std::size_t kMaxRead = std::size_t{1} << 30;  // Linux transfers less than 2 GiB per call
    std::size_t filled = 0;
    while (filled < target.size()) {
        const auto count = ::pread(file, target.data() + filled, std::min(target.size() - filled, kMaxRead),
                                   static_cast<off_t>(offset + filled));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count == 0) {
            errno = 0;
        }
        if (count <= 0) {
            break;
        }
        filled += static_cast<std::size_t>(count);
    }
    return filled;
}

Result<void> read_all_at(int file, std::span<std::byte> target, std::uint64_t offset, const std::filesystem::path& path,
                         const std::string& what) {
    if (read_at(file, target, offset) == target.size()) {
        return {};
    }
    return io_error(path.string() + ": cannot read" + (what.empty() ? "" : " " + what) + ": " +
                    (errno == 0 ? "the file has become shorter" : std::generic_category().message(errno)));
}

}  // namespace distilld

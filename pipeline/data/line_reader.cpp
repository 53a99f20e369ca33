#include "pipeline/data/line_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace distilld {

namespace {

constexpr std::size_t kFirstBuffer = 256U << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

Error system_error(const std::filesystem::path& file, const char* what) {
    return io_error(file.string() + ": " + what + ": " + std::generic_category().message(errno));
}

}  // namespace

LineReader::LineReader(std::filesystem::path file, std::size_t max_line_bytes, std::size_t padding)
    : file_(std::move(file)), max_line_bytes_(max_line_bytes), padding_(padding) {}

LineReader::~LineReader() {
    if (descriptor_ >= 0) {
        ::close(descriptor_);
    }
}

Result<void> LineReader::open() {
    // Without O_NONBLOCK, a pipe that nobody writes to would hold us here for ever.
    descriptor_ = ::open(file_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) {
        return system_error(file_, "cannot be opened");
    }
    struct stat info{};
    if (::fstat(descriptor_, &info) != 0) {
        return system_error(file_, "cannot be examined");
    }
    if (S_ISDIR(info.st_mode)) {
        return io_error(file_.string() + ": is a folder, a file was expected");
    }
    if (!S_ISREG(info.st_mode)) {
        return invalid_input(file_.string() + ": is not a regular file (a pipe, a socket or a device)");
    }
    file_size_ = static_cast<std::uint64_t>(info.st_size);
    buffer_.resize(kFirstBuffer + padding_);
    return {};
}

Result<bool> LineReader::next() {
    ++line_number_;
    std::size_t searched = 0;  // bytes from begin_ on that hold no line feed
    for (;;) {
        const char* start = buffer_.data() + begin_;
        const std::size_t available = end_ - begin_;
        const auto* feed = static_cast<const char*>(std::memchr(start + searched, '\n', available - searched));
        const std::size_t length = feed != nullptr ? static_cast<std::size_t>(feed - start) : available;
        if (length > max_line_bytes_) {
            return invalid_input(location() + ": line is longer than " + std::to_string(max_line_bytes_) + " bytes");
        }
        if (feed != nullptr) {
            take(length, 1);
            return true;
        }
        if (at_end_) {
            if (available == 0) {
                line_ = {};
                return false;
            }
            take(length, 0);
            return true;
        }
        searched = available;
        if (auto filled = fill(); !filled) {
            return filled.error();
        }
    }
}

void LineReader::take(std::size_t length, std::size_t line_break) {
    line_ = std::string_view(buffer_.data() + begin_, length);
    begin_ += length + line_break;
    bytes_consumed_ += length + line_break;
    if (line_number_ == 1 && line_.starts_with(kByteOrderMark)) {
        line_.remove_prefix(kByteOrderMark.size());
    }
    if (line_.ends_with('\r')) {
        line_.remove_suffix(1);
    }
}

// Moves the begun line to the front, doubles the buffer when it is full of that one line, and reads once.
Result<void> LineReader::fill() {
    if (begin_ > 0) {
        std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    if (end_ + padding_ == buffer_.size()) {
        buffer_.resize(2 * end_ + padding_);
    }
    for (;;) {
        const ssize_t count = ::read(descriptor_, buffer_.data() + end_, buffer_.size() - padding_ - end_);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return system_error(file_, "cannot be read");
        }
        at_end_ = count == 0;
        end_ += static_cast<std::size_t>(count);
        return {};
    }
}

std::string LineReader::location() const {
    return file_.string() + ":" + std::to_string(line_number_);
}

}  // namespace distilld

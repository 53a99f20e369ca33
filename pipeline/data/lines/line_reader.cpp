#include "pipeline/data/lines/line_reader.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace distilld {

namespace {

constexpr std::size_t kFirstBuffer = 256U << 10;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

LineReader::LineReader(std::filesystem::path file, std::size_t max_line_bytes, std::size_t padding)
    : file_(std::move(file)), max_line_bytes_(max_line_bytes), padding_(padding) {}

Result<void> LineReader::open() {
    Result<std::unique_ptr<ByteSource>> opened = open_bytes(file_);
    if (!opened) {
        return opened.error();
    }
    source_ = std::move(*opened);
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

// Moves the unfinished line to the front, doubles the buffer if this line fills it, and reads once.
Result<void> LineReader::fill() {
    if (begin_ > 0) {
        std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    if (end_ + padding_ == buffer_.size()) {
        buffer_.resize(2 * end_ + padding_);
    }
    const Result<std::size_t> count = source_->read(std::span(buffer_).subspan(end_, buffer_.size() - padding_ - end_));
    if (!count) {
        return count.error();
    }
    at_end_ = *count == 0;
    end_ += *count;
    bytes_read_ += *count;
    return {};
}

std::uint64_t LineReader::file_bytes_consumed() const {
    if (bytes_read_ == 0) {
        return 0;
    }
    const double share = static_cast<double>(bytes_consumed_) / static_cast<double>(bytes_read_);
    return static_cast<std::uint64_t>(share * static_cast<double>(source_->file_bytes_read()));
}

std::string LineReader::location() const {
    return file_.string() + ":" + std::to_string(line_number_);
}

}  // namespace distilld

#include "pipeline/data/growing_bytes.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/crc32c.hpp"
#include "base/open_file.hpp"

namespace distilld {

namespace {

/// What gathers before it is written; a multiple of the blocks that have a checksum.
constexpr std::size_t kBufferBytes = 16 * KeptBytes::kBlockBytes;

std::string reason() {
    return std::generic_category().message(errno);
}

}  // namespace

GrowingBytes::GrowingBytes(TokenDraft* draft, std::string name) : draft_(draft), name_(std::move(name)) {}

Result<void> GrowingBytes::append(std::span<const std::byte> bytes) {
    memory_.insert(memory_.end(), bytes.begin(), bytes.end());
    size_ += bytes.size();
    return settle();
}

Result<void> GrowingBytes::append_all_of(const GrowingBytes& other) {
    std::vector<std::byte> buffer;
    for (std::uint64_t done = 0; done < other.flushed_; done += buffer.size()) {
        buffer.resize(std::min<std::uint64_t>(kBufferBytes, other.flushed_ - done));
        if (Result<void> read = other.read_at(done, buffer); !read) {
            return read;
        }
        if (Result<void> appended = append(buffer); !appended) {
            return appended;
        }
    }
    return append(other.memory_);
}

Result<GrownBytes> GrowingBytes::finish() {
    if (Result<void> settled = settle(); !settled) {
        return settled.error();
    }
    if (file_) {
        if (Result<GrownBytes> grown = finish_file(); grown) {
            return grown;
        } else {
            draft_->give_up(grown.error().message);
        }
        if (Result<void> back = take_back(); !back) {
            return back.error();
        }
    }
    return GrownBytes{KeptBytes::in_memory(std::move(memory_)), 0};
}

/// Puts the bytes where they belong now.
Result<void> GrowingBytes::settle() {
    if (draft_ == nullptr) {
        return {};
    }
    const bool in_file = draft_->takes_files() && (file_ || make_file()) && flush(false);
    return in_file ? Result<void>() : take_back();
}

bool GrowingBytes::make_file() {
    Result<Descriptor> opened = open_file(draft_->folder() / name_, O_RDWR | O_CREAT | O_EXCL);
    if (!opened) {
        draft_->give_up(opened.error().message);
        return false;
    }
    file_ = std::move(*opened);
    return true;
}

/// Writes what makes up whole buffers, or all. False: the draft is given up.
bool GrowingBytes::flush(bool whole) {
    const std::size_t count = whole ? memory_.size() : memory_.size() / kBufferBytes * kBufferBytes;
    if (count == 0) {
        return true;
    }
    const auto bytes = std::span<const std::byte>(memory_).first(count);
    if (!draft_->takes(count) || !write(bytes)) {
        return false;
    }
    for (std::size_t begin = 0; begin < count; begin += KeptBytes::kBlockBytes) {
        sums_.push_back(crc32c(bytes.subspan(begin, std::min(KeptBytes::kBlockBytes, count - begin))));
    }
    flushed_ += count;
    memory_.erase(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(count));
    if (memory_.capacity() > 4 * kBufferBytes) {
        memory_.shrink_to_fit();  // what had gathered before there was a file
    }
    return true;
}

bool GrowingBytes::write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            draft_->give_up((draft_->folder() / name_).string() + ": cannot write: " + reason());
            return false;
        }
        bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    return true;
}

/// From the file, which may be gone from its folder, into memory.
Result<void> GrowingBytes::take_back() {
    if (!file_) {
        return {};
    }
    std::vector<std::byte> all;
    all.reserve(flushed_ + memory_.size());
    all.resize(flushed_);
    if (Result<void> read = read_at(0, all); !read) {
        return read;
    }
    all.insert(all.end(), memory_.begin(), memory_.end());
    memory_ = std::move(all);
    flushed_ = 0;
    sums_.clear();
    file_ = Descriptor();
    return {};
}

Result<void> GrowingBytes::read_at(std::uint64_t offset, std::span<std::byte> into) const {
    while (!into.empty()) {
        const ssize_t count = ::pread(file_.get(), into.data(), into.size(), static_cast<off_t>(offset));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return io_error((draft_->target() / name_).string() +
                            ": cannot read back what was written: " + (count < 0 ? reason() : "it ends too early"));
        }
        offset += static_cast<std::uint64_t>(count);
        into = into.subspan(static_cast<std::size_t>(count));
    }
    return {};
}

/// On an error the bytes can still be taken back.
Result<GrownBytes> GrowingBytes::finish_file() {
    const std::string path = (draft_->folder() / name_).string();
    if (!flush(true)) {
        return io_error(path + ": was given up");
    }
    const auto sums = std::as_bytes(std::span(std::as_const(sums_)));
    if (!draft_->takes(sums.size()) || !write(sums)) {
        return io_error(path + ": was given up");
    }
    if (::fsync(file_.get()) != 0) {
        return write_error(path + ": cannot make durable: " + reason(), errno);
    }
    GrownBytes grown;
    grown.sum = crc32c(sums);
    Result<std::unique_ptr<const KeptBytes>> map = KeptBytes::map(path, size_, grown.sum, draft_->target());
    if (!map) {
        return map.error();
    }
    grown.bytes = std::move(*map);
    file_ = Descriptor();
    return grown;
}

}  // namespace distilld

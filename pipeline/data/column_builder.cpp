#include "pipeline/data/column_builder.hpp"

#include <algorithm>
#include <utility>

#include "base/crc32c.hpp"

namespace distilld {

namespace {

constexpr std::size_t kBufferBytes = 1U << 20;

}  // namespace

ColumnBuilder::ColumnBuilder(TokenDraft* draft, std::string name) : draft_(draft), name_(std::move(name)) {}

Result<void> ColumnBuilder::append(std::span<const std::byte> bytes) {
    memory_.insert(memory_.end(), bytes.begin(), bytes.end());
    size_ += bytes.size();
    return draft_ != nullptr && memory_.size() >= kBufferBytes ? flush() : Result<void>();
}

Result<void> ColumnBuilder::append_all_of(ColumnBuilder& other) {
    if (draft_ == nullptr) {
        return append(other.memory_);
    }
    if (Result<void> flushed = other.flush(); !flushed) {
        return flushed;
    }
    const Result<MappedFile> written = draft_->map(other.name_);
    if (!written) {
        return written.error();
    }
    Result<void> appended;
    for (auto left = written->bytes(); appended && !left.empty();) {
        const std::size_t count = std::min(kBufferBytes, left.size());
        appended = append(left.first(count));
        left = left.subspan(count);
    }
    return appended;
}

Result<ColumnBytes> ColumnBuilder::finish() {
    ColumnBytes kept;
    if (draft_ == nullptr) {
        kept.memory = std::move(memory_);
        return kept;
    }
    if (Result<void> flushed = flush(); !flushed) {
        return flushed.error();
    }
    Result<MappedFile> file = draft_->seal(file_, name_);
    if (!file) {
        return file.error();
    }
    kept.file = std::move(*file);
    kept.sum = sum_;
    return kept;
}

Result<void> ColumnBuilder::flush() {
    sum_ = crc32c(memory_, sum_);
    Result<void> written = draft_->write(file_, name_, memory_);
    memory_.clear();
    return written;
}

}  // namespace distilld

#include "pipeline/data/lines/line_blocks.hpp"

#include <algorithm>
#include <system_error>

namespace distilld {

namespace {

bool is_blank(std::string_view line) {
    return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::uint64_t size_of(const std::filesystem::path& file) {
    std::error_code unknown;  // opening the file reports the error
    const std::uintmax_t size = std::filesystem::file_size(file, unknown);
    return unknown ? 0 : size;
}

}  // namespace

void LineBlock::clear() {
    if (bytes.capacity() > 4 * LineBlocks::kBlockBytes) {
        bytes = {};  // frees the memory of a long line
    }
    bytes.clear();
    lines.clear();
    error.reset();
}

LineBlocks::LineBlocks(std::span<const std::filesystem::path> files, std::size_t max_line_bytes, std::size_t padding)
    : files_(files), max_line_bytes_(max_line_bytes), padding_(padding) {
    for (const std::filesystem::path& file : files) {
        sizes_.push_back(size_of(file));
        total_bytes_ += sizes_.back();
    }
}

bool LineBlocks::next(LineBlock& block) {
    block.clear();
    while (block.lines.empty()) {
        if (!reader_) {
            const Result<bool> opened = open_next_file();
            if (!opened) {
                block.error = opened.error();
                return true;
            }
            if (!*opened) {
                return false;
            }
        }
        block.file = opened_ - 1;
        block.share_before = share();
        while (reader_ && block.bytes.size() < kBlockBytes) {
            const Result<bool> more = add_line(block);
            if (!more) {
                block.error = more.error();
                block.share_after = share();
                block.bytes.resize(block.bytes.size() + padding_);
                return true;
            }
            if (!*more) {
                bytes_of_finished_files_ += sizes_[block.file];
                reader_.reset();
            }
        }
        block.share_after = share();
    }
    block.bytes.resize(block.bytes.size() + padding_);
    return true;
}

Result<bool> LineBlocks::open_next_file() {
    if (opened_ == files_.size()) {
        return false;
    }
    reader_.emplace(files_[opened_], max_line_bytes_, padding_);
    ++opened_;
    if (Result<void> opened = reader_->open(); !opened) {
        return opened.error();
    }
    return true;
}

Result<bool> LineBlocks::add_line(LineBlock& block) {
    const Result<bool> more = reader_->next();
    if (!more || !*more) {
        return more;
    }
    const std::string_view line = reader_->line();
    if (!is_blank(line)) {
        block.lines.push_back({block.bytes.size(), line.size(), reader_->line_number()});
        block.bytes.insert(block.bytes.end(), line.begin(), line.end());
    }
    return true;
}

double LineBlocks::share() const {
    const std::uint64_t now = bytes_of_finished_files_ + (reader_ ? reader_->file_bytes_consumed() : 0);
    return total_bytes_ == 0 ? 0.0 : std::min(1.0, static_cast<double>(now) / static_cast<double>(total_bytes_));
}

}  // namespace distilld

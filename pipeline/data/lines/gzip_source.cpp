#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/data/lines/byte_source.hpp"

namespace distilld {

namespace {

constexpr std::size_t kInputBytes = 128U << 10;
constexpr int kGzipWrapper = 16 + MAX_WBITS;

class GzipSource final : public ByteSource {
  public:
    GzipSource(std::filesystem::path file, std::unique_ptr<ByteSource> packed)
        : file_(std::move(file)), packed_(std::move(packed)), input_(kInputBytes) {
        if (::inflateInit2(&stream_, kGzipWrapper) != Z_OK) {
            throw std::bad_alloc();
        }
    }
    ~GzipSource() override { ::inflateEnd(&stream_); }
    GzipSource(const GzipSource&) = delete;
    GzipSource& operator=(const GzipSource&) = delete;

    Result<std::size_t> read(std::span<char> out) override {
        stream_.next_out = reinterpret_cast<Bytef*>(out.data());
        stream_.avail_out = static_cast<uInt>(std::min(out.size(), std::size_t{1} << 30));
        const uInt room = stream_.avail_out;
        while (stream_.avail_out == room) {
            if (stream_.avail_in == 0 && !at_end_) {
                if (Result<void> filled = fill(); !filled) {
                    return filled.error();
                }
            }
            if (between_members_) {
                skip_zeros();
                if (stream_.avail_in == 0 && at_end_) {
                    return std::size_t{0};
                }
                if (stream_.avail_in == 0) {
                    continue;
                }
                between_members_ = false;
            }
            if (Result<void> unpacked = unpack(); !unpacked) {
                return unpacked.error();
            }
        }
        return std::size_t{room - stream_.avail_out};
    }

    std::uint64_t file_bytes_read() const override { return packed_->file_bytes_read() - stream_.avail_in; }

  private:
    Result<void> fill() {
        const Result<std::size_t> count = packed_->read(input_);
        if (!count) {
            return count.error();
        }
        stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
        stream_.avail_in = static_cast<uInt>(*count);
        at_end_ = *count == 0;
        return {};
    }

    void skip_zeros() {
        while (members_ > 0 && stream_.avail_in > 0 && *stream_.next_in == 0) {
            ++stream_.next_in;
            --stream_.avail_in;
        }
    }

    Result<void> unpack() {
        const bool no_more = stream_.avail_in == 0;
        const int code = ::inflate(&stream_, Z_NO_FLUSH);
        if (code == Z_STREAM_END) {
            ++members_;
            between_members_ = true;
            ::inflateReset(&stream_);
            return {};
        }
        if (code == Z_MEM_ERROR) {
            throw std::bad_alloc();
        }
        if (code == Z_DATA_ERROR || code == Z_NEED_DICT) {
            const std::string why = stream_.msg != nullptr ? stream_.msg : "needs a dictionary";
            return invalid_input(file_.string() + ": its gzip data are damaged (" + why + ")");
        }
        if (no_more && code == Z_BUF_ERROR) {
            return invalid_input(file_.string() + ": is cut off: the gzip data have no end");
        }
        return {};
    }

    std::filesystem::path file_;
    std::unique_ptr<ByteSource> packed_;
    std::vector<char> input_;
    ::z_stream stream_{};
    std::uint64_t members_ = 0;  // complete ones
    bool between_members_ = true;
    bool at_end_ = false;  // of the file
};

}  // namespace

std::unique_ptr<ByteSource> make_gzip_source(std::filesystem::path file, std::unique_ptr<ByteSource> packed) {
    return std::make_unique<GzipSource>(std::move(file), std::move(packed));
}

}  // namespace distilld

#include <zstd.h>
#include <zstd_errors.h>

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

struct FreeContext {
    void operator()(ZSTD_DCtx* context) const { ::ZSTD_freeDCtx(context); }
};

class ZstdSource final : public ByteSource {
  public:
    ZstdSource(std::filesystem::path file, std::unique_ptr<ByteSource> packed)
        : file_(std::move(file)),
          packed_(std::move(packed)),
          input_(::ZSTD_DStreamInSize()),
          context_(::ZSTD_createDCtx()) {
        if (context_ == nullptr ||
            ::ZSTD_isError(::ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kMaxZstdWindowLog)) != 0) {
            throw std::bad_alloc();
        }
    }

    Result<std::size_t> read(std::span<char> out) override {
        ZSTD_outBuffer output{out.data(), out.size(), 0};
        while (output.pos == 0) {
            if (available_.pos == available_.size && !at_end_) {
                if (Result<void> filled = fill(); !filled) {
                    return filled.error();
                }
            }
            const bool no_more = at_end_ && available_.pos == available_.size;
            if (no_more && !inside_frame_) {
                return std::size_t{0};
            }
            const std::size_t code = ::ZSTD_decompressStream(context_.get(), &output, &available_);
            if (::ZSTD_isError(code) != 0) {
                return error_of(code);
            }
            inside_frame_ = code != 0;
            if (no_more && inside_frame_ && output.pos == 0) {
                return invalid_input(file_.string() + ": is cut off: the zstd data have no end");
            }
        }
        return output.pos;
    }

    std::uint64_t file_bytes_read() const override {
        return packed_->file_bytes_read() - (available_.size - available_.pos);
    }

  private:
    Result<void> fill() {
        const Result<std::size_t> count = packed_->read(input_);
        if (!count) {
            return count.error();
        }
        available_ = {input_.data(), *count, 0};
        at_end_ = *count == 0;
        return {};
    }

    [[nodiscard]] Error error_of(std::size_t code) const {
        const ZSTD_ErrorCode error = ::ZSTD_getErrorCode(code);
        if (error == ZSTD_error_memory_allocation) {
            throw std::bad_alloc();
        }
        if (error == ZSTD_error_frameParameter_windowTooLarge) {
            return invalid_input(file_.string() + ": its zstd data need a window of more than " +
                                 std::to_string((std::size_t{1} << kMaxZstdWindowLog) >> 20U) +
                                 " MiB: compress it again without --long");
        }
        return invalid_input(file_.string() + ": its zstd data are damaged (" + ::ZSTD_getErrorName(code) + ")");
    }

    std::filesystem::path file_;
    std::unique_ptr<ByteSource> packed_;
    std::vector<char> input_;
    std::unique_ptr<ZSTD_DCtx, FreeContext> context_;
    ZSTD_inBuffer available_{nullptr, 0, 0};
    bool inside_frame_ = false;
    bool at_end_ = false;  // of the file
};

}  // namespace

std::unique_ptr<ByteSource> make_zstd_source(std::filesystem::path file, std::unique_ptr<ByteSource> packed) {
    return std::make_unique<ZstdSource>(std::move(file), std::move(packed));
}

}  // namespace distilld

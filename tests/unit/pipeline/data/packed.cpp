#include "tests/unit/pipeline/data/packed.hpp"

#include <zlib.h>
#include <zstd.h>

#include <memory>
#include <stdexcept>

namespace distilld::test {

std::string gzipped(std::string_view text) {
    ::z_stream stream{};
    if (::deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        throw std::runtime_error("deflateInit2 failed");
    }
    std::string source(text);
    std::string packed(::deflateBound(&stream, source.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(source.data());
    stream.avail_in = static_cast<uInt>(source.size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    const int code = ::deflate(&stream, Z_FINISH);
    packed.resize(packed.size() - stream.avail_out);
    ::deflateEnd(&stream);
    if (code != Z_STREAM_END) {
        throw std::runtime_error("deflate failed");
    }
    return packed;
}

std::string zstd_packed(std::string_view text, int window_log) {
    const std::unique_ptr<ZSTD_CCtx, decltype(&::ZSTD_freeCCtx)> context(::ZSTD_createCCtx(), &::ZSTD_freeCCtx);
    ::ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
    ::ZSTD_CCtx_setParameter(context.get(), ZSTD_c_contentSizeFlag, window_log == 0 ? 1 : 0);
    ::ZSTD_CCtx_setParameter(context.get(), ZSTD_c_windowLog, window_log);
    std::string packed(::ZSTD_compressBound(text.size()), '\0');
    // As a stream of which the length is not known, so that the window stays as it was asked for.
    ZSTD_inBuffer in{text.data(), text.size(), 0};
    ZSTD_outBuffer out{packed.data(), packed.size(), 0};
    std::size_t left = 1;
    if (window_log != 0) {
        ZSTD_inBuffer nothing{text.data(), 0, 0};
        left = ::ZSTD_compressStream2(context.get(), &out, &nothing, ZSTD_e_flush);
    }
    left = ::ZSTD_compressStream2(context.get(), &out, &in, ZSTD_e_end);
    if (left != 0) {
        throw std::runtime_error("zstd failed");
    }
    packed.resize(out.pos);
    return packed;
}

}  // namespace distilld::test

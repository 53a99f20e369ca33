#include "pipeline/data/lines/byte_source.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/files/open_file.hpp"

namespace distilld {

namespace {

namespace fs = std::filesystem;

Error system_error(const fs::path& file, const char* what) {
    return io_error(file.string() + ": " + what + ": " + std::generic_category().message(errno));
}

class FileSource final : public ByteSource {
  public:
    FileSource(fs::path file, Descriptor descriptor) : file_(std::move(file)), descriptor_(std::move(descriptor)) {}

    Result<std::size_t> read(std::span<char> out) override {
        for (;;) {
            const ssize_t count = ::read(descriptor_.get(), out.data(), out.size());
            if (count < 0 && errno == EINTR) {
                continue;
            }
            if (count < 0) {
                return system_error(file_, "cannot be read");
            }
            read_ += static_cast<std::uint64_t>(count);
            return static_cast<std::size_t>(count);
        }
    }

    std::uint64_t file_bytes_read() const override { return read_; }

    /// Does not move the position of read().
    Result<std::string> first_bytes() const {
        std::array<char, 8> bytes{};
        const ssize_t count = ::pread(descriptor_.get(), bytes.data(), bytes.size(), 0);
        if (count < 0) {
            return system_error(file_, "cannot be read");
        }
        return std::string(bytes.data(), static_cast<std::size_t>(count));
    }

  private:
    fs::path file_;
    Descriptor descriptor_;
    std::uint64_t read_ = 0;
};

constexpr std::string_view kGzip = "\x1F\x8B";
constexpr std::string_view kZstd = "\x28\xB5\x2F\xFD";
constexpr std::string_view kZstdSkippable = "\x2A\x4D\x18";  // after a byte from 50 to 5F; pzstd begins with one

struct KnownMagic {
    std::string_view bytes;
    const char* what;
};

constexpr KnownMagic kNotUnderstood[] = {
    {{"\xFD"
      "7zXZ",
      5},
     "compressed with xz: decompress it, or use gzip or zstd"},
    {"BZh", "compressed with bzip2: decompress it, or use gzip or zstd"},
    {"PK\x03\x04", "a zip archive: unpack it"},
    {"PAR1", "a Parquet file: write its rows as JSONL"},
    {"ARROW1", "an Arrow file: write its rows as JSONL"},
};

bool is_zstd(std::string_view first) {
    return first.starts_with(kZstd) || (first.size() >= 4 && (static_cast<unsigned char>(first[0]) & 0xF0U) == 0x50U &&
                                        first.substr(1).starts_with(kZstdSkippable));
}

}  // namespace

Result<std::unique_ptr<ByteSource>> open_bytes(const fs::path& file) {
    Result<Descriptor> opened = open_file(file, O_RDONLY);
    if (!opened) {
        return opened.error();
    }
    auto source = std::make_unique<FileSource>(file, std::move(*opened));
    const Result<std::string> first = source->first_bytes();
    if (!first) {
        return first.error();
    }
    for (const KnownMagic& magic : kNotUnderstood) {
        if (first->starts_with(magic.bytes)) {
            return invalid_input(file.string() + ": is " + magic.what);
        }
    }
    if (first->starts_with(kGzip)) {
        return make_gzip_source(file, std::move(source));
    }
    if (is_zstd(*first)) {
        return make_zstd_source(file, std::move(source));
    }
    return std::unique_ptr<ByteSource>(std::move(source));
}

}  // namespace distilld

#include "base/file_hash.hpp"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>
#include <vector>

namespace distilld {

Result<std::string> sha256_file(const std::filesystem::path& path) {
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rbe"));
    if (!file) {
        return io_error(path.string() + ": cannot open: " + std::generic_category().message(errno));
    }
    struct Free {
        void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
    };
    const std::unique_ptr<EVP_MD_CTX, Free> context(EVP_MD_CTX_new());
    if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) {
        return Error{ErrorKind::internal, "SHA-256 is not available in OpenSSL"};
    }
    std::vector<unsigned char> buffer(std::size_t{1} << 20);
    while (true) {
        const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get());
        if (count > 0 && EVP_DigestUpdate(context.get(), buffer.data(), count) != 1) {
            return Error{ErrorKind::internal, "SHA-256 failed"};
        }
        if (count < buffer.size()) {
            if (std::ferror(file.get()) != 0) {
                return io_error(path.string() + ": cannot read: " + std::generic_category().message(errno));
            }
            break;
        }
    }
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int length = 0;
    if (EVP_DigestFinal_ex(context.get(), digest.data(), &length) != 1) {
        return Error{ErrorKind::internal, "SHA-256 failed"};
    }
    static constexpr char kHex[] = "0123456789abcdef";
    std::string text;
    for (unsigned int i = 0; i < length; ++i) {
        text += kHex[digest[i] >> 4U];
        text += kHex[digest[i] & 15U];
    }
    return text;
}

}  // namespace distilld

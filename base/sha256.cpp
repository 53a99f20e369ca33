#include "base/sha256.hpp"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace distilld {

struct Sha256::State {
    struct Free {
        void operator()(EVP_MD_CTX* used) const { EVP_MD_CTX_free(used); }
    };
    std::unique_ptr<EVP_MD_CTX, Free> context{EVP_MD_CTX_new()};
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
    if (state_->context == nullptr) {
        throw std::bad_alloc();
    }
    if (EVP_DigestInit_ex(state_->context.get(), EVP_sha256(), nullptr) != 1) {
        throw std::runtime_error("SHA-256 is not available in OpenSSL");
    }
}

Sha256::~Sha256() = default;

void Sha256::add(std::span<const std::byte> bytes) {
    if (EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) != 1) {
        throw std::runtime_error("SHA-256 failed");
    }
}

std::string Sha256::hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int length = 0;
    if (EVP_DigestFinal_ex(state_->context.get(), digest.data(), &length) != 1) {
        throw std::runtime_error("SHA-256 failed");
    }
    static constexpr char kHex[] = "0123456789abcdef";
    std::string text;
    for (unsigned int i = 0; i < length; ++i) {
        text += kHex[digest[i] >> 4U];
        text += kHex[digest[i] & 15U];
    }
    return text;
}

Result<std::string> sha256_file(const std::filesystem::path& path) {
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rbe"));
    if (!file) {
        return write_error(path.string() + ": cannot open: " + std::generic_category().message(errno), errno);
    }
    Sha256 hash;
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    for (;;) {
        const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), file.get());
        hash.add(std::span<const std::byte>(buffer.data(), count));
        if (count < buffer.size()) {
            break;
        }
    }
    if (std::ferror(file.get()) != 0) {
        return io_error(path.string() + ": cannot read: " + std::generic_category().message(errno));
    }
    return hash.hex();
}

}  // namespace distilld

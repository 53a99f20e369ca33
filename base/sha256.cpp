#include "base/sha256.hpp"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "base/files/open_file.hpp"
#include "base/files/read_at.hpp"
#include "base/hex.hpp"

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
    return distilld::hex(std::as_bytes(std::span(digest).first(length)));
}

std::string sha256_text(std::string_view text) {
    Sha256 hash;
    hash.add(std::span(text));
    return hash.hex();
}

Result<std::string> sha256_file(const std::filesystem::path& path) {
    const Result<Descriptor> file = open_file(path, O_RDONLY);
    if (!file) {
        return file.error();
    }
    Sha256 hash;
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    for (std::uint64_t done = 0;; done += buffer.size()) {
        const std::size_t count = read_at(file->get(), buffer, done);
        if (count < buffer.size() && errno != 0) {
            return io_error(path.string() + ": cannot read: " + std::generic_category().message(errno));
        }
        hash.add(std::span<const std::byte>(buffer).first(count));
        if (count < buffer.size()) {
            return hash.hex();
        }
    }
}

}  // namespace distilld

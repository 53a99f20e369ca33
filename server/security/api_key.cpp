#include "server/security/api_key.hpp"

#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>

#include "api/job_types.hpp"
#include "base/hex.hpp"
#include "base/sha256.hpp"

namespace distilld {
namespace {

constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kIdBytes = 6;
constexpr std::size_t kMaxNameBytes = 64;

template <std::size_t Size>
std::array<unsigned char, Size> random_bytes() {
    std::array<unsigned char, Size> bytes{};
    if (::RAND_bytes(bytes.data(), static_cast<int>(Size)) != 1) {
        throw std::runtime_error("OpenSSL has no random numbers for a key");
    }
    return bytes;
}

/// RFC 4648, section 5, without padding.
std::string base64url(std::span<const unsigned char> bytes) {
    static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    std::string text;
    std::uint32_t bits = 0;
    unsigned count = 0;
    for (const unsigned char byte : bytes) {
        bits = (bits << 8U) | byte;
        count += 8;
        while (count >= 6) {
            count -= 6;
            text += kDigits[(bits >> count) & 63U];
        }
    }
    if (count > 0) {
        text += kDigits[(bits << (6 - count)) & 63U];
    }
    return text;
}

bool is_letter_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

bool is_key_name(std::string_view text) {
    const auto allowed = [](char c) { return is_letter_or_digit(c) || c == '.' || c == '_' || c == '-'; };
    return !text.empty() && text.size() <= kMaxNameBytes && is_letter_or_digit(text.front()) &&
           std::ranges::all_of(text, allowed);
}

NewApiKey make_api_key(std::string name, http::Role role) {
    NewApiKey made;
    const auto id = random_bytes<kIdBytes>();
    made.secret = "dk_" + base64url(random_bytes<kSecretBytes>());
    made.key.id = "key-" + hex(std::as_bytes(std::span(id)));
    made.key.name = std::move(name);
    made.key.role = role;
    made.key.sha256 = hash_of_secret(made.secret);
    made.key.created_at = api::rfc3339(std::chrono::system_clock::now());
    return made;
}

std::string hash_of_secret(std::string_view secret) {
    return sha256_text(secret);
}

bool same_hash(std::string_view one, std::string_view other) {
    return one.size() == other.size() && ::CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

}  // namespace distilld

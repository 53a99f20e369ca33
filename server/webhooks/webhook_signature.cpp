#include "server/webhooks/webhook_signature.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "base/files/files.hpp"

namespace distilld::webhooks {
namespace {

constexpr std::string_view kPrefix = "whsec_";
constexpr std::size_t kMinBytes = 24;
constexpr std::size_t kMaxBytes = 64;
constexpr std::uint64_t kMaxFile = 16U << 10;
constexpr std::string_view kBlanks = " \t\r";

const unsigned char* bytes_of(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

std::string base64(std::string_view bytes) {
    std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
    const int size = ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()), bytes_of(bytes),
                                       static_cast<int>(bytes.size()));
    text.resize(static_cast<std::size_t>(size));
    return text;
}

}  // namespace

Result<std::string> parse_webhook_secret(std::string_view text) {
    const auto wrong = invalid_input("is not a secret: expected whsec_ and the base64 of 24 to 64 bytes");
    if (!text.starts_with(kPrefix) || text.size() > 4 * kMaxBytes) {
        return wrong;
    }
    text.remove_prefix(kPrefix.size());
    std::string bytes(3 * (text.size() / 4), '\0');
    const int size = ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()), bytes_of(text),
                                       static_cast<int>(text.size()));
    if (size < 0) {
        return wrong;
    }
    const auto padding = text.ends_with("==") ? 2U : (text.ends_with('=') ? 1U : 0U);
    bytes.resize(static_cast<std::size_t>(size) - padding);
    if (bytes.size() < kMinBytes || bytes.size() > kMaxBytes) {
        return wrong;
    }
    return bytes;
}

Result<std::vector<std::string>> read_webhook_secrets(const std::filesystem::path& file) {
    const auto text = read_text_file(file, kMaxFile);
    if (!text) {
        return text.error();
    }
    std::vector<std::string> secrets;
    std::size_t number = 0;
    for (std::string_view rest = *text; !rest.empty();) {
        ++number;
        auto line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
        line = line.substr(0, line.find_last_not_of(kBlanks) + 1);
        if (line.empty()) {
            continue;
        }
        auto secret = parse_webhook_secret(line);
        if (!secret) {
            return invalid_input(file.string() + ":" + std::to_string(number) + ": " + secret.error().message);
        }
        secrets.push_back(*std::move(secret));
    }
    if (secrets.empty()) {
        return invalid_input(file.string() +
                             ": does not hold a secret: expected whsec_ and the base64 of 24 to 64 bytes");
    }
    return secrets;
}

std::string webhook_signature(const std::vector<std::string>& secrets, std::string_view id, std::int64_t timestamp,
                              std::string_view body) {
    const auto content = std::string(id) + "." + std::to_string(timestamp) + "." + std::string(body);
    std::string header;
    for (const auto& secret : secrets) {
        std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
        unsigned size = 0;
        if (::HMAC(::EVP_sha256(), secret.data(), static_cast<int>(secret.size()), bytes_of(content), content.size(),
                   digest.data(), &size) == nullptr) {
            throw std::runtime_error("OpenSSL has no HMAC-SHA256");
        }
        header += (header.empty() ? "v1," : " v1,");
        header += base64({reinterpret_cast<const char*>(digest.data()), size});
    }
    return header;
}

}  // namespace distilld::webhooks

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

/// Signatures as in https://www.standardwebhooks.com. Pure, except for read_webhook_secrets().
namespace distilld::webhooks {

/// Decodes a secret: "whsec_" and the base64 of 24 to 64 bytes. The error does not repeat it.
[[nodiscard]] Result<std::string> parse_webhook_secret(std::string_view text);

/// The secrets in a file, one per line, newest first; at least one. The error (invalid_input, io) names the file and
/// the line.
[[nodiscard]] Result<std::vector<std::string>> read_webhook_secrets(const std::filesystem::path& file);

/// The header webhook-signature: "v1,BASE64" of HMAC-SHA256 over "ID.TIMESTAMP.BODY", one per secret.
[[nodiscard]] std::string webhook_signature(const std::vector<std::string>& secrets, std::string_view id,
                                            std::int64_t timestamp, std::string_view body);

}  // namespace distilld::webhooks

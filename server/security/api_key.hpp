#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "server/http/caller.hpp"

namespace distilld {

/// Environment variable with the secret of an admin key, for setups that cannot run `distilld keys`.
inline constexpr const char* kAdminKeyVariable = "DISTILLD_ADMIN_KEY";
/// The reserved name of that key, and its id.
inline constexpr const char* kAdminKeyName = "admin-from-environment";

/// A stored key of the service; only the hash of its secret is kept.
struct ApiKey {
    std::string id;
    std::string name;  ///< the owner of its jobs
    http::Role role = http::Role::read;
    std::string sha256;      ///< of the secret, 64 lower-case hex digits
    std::string created_at;  ///< RFC 3339
    std::string last_used;   ///< RFC 3339, to the minute or so; empty = never
};

struct NewApiKey {
    ApiKey key;
    std::string secret;  ///< shown once, never stored
};

/// 1 to 64 letters, digits and `. _ -`, the first a letter or digit.
[[nodiscard]] bool is_key_name(std::string_view text);

/// A secret of 256 random bits: "dk_" and base64url. Throws std::runtime_error if OpenSSL has no random numbers.
[[nodiscard]] NewApiKey make_api_key(std::string name, http::Role role);

/// The hash of a secret. Secrets have 256 random bits, so one round of SHA-256 withstands brute force
/// (docs/decisions/0007).
[[nodiscard]] std::string hash_of_secret(std::string_view secret);

/// Compares in constant time.
[[nodiscard]] bool same_hash(std::string_view one, std::string_view other);

}  // namespace distilld

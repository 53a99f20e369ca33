#pragma once

#include <string>
#include <string_view>

#include "api/caller.hpp"
#include "base/error.hpp"

namespace distilld {

/// Environment variable with the secret of a key of role admin, for services that are set up by what cannot run
/// `distilld keys`.
inline constexpr const char* kAdminKeyVariable = "DISTILLD_ADMIN_KEY";
/// The name of that key, which no other may have, and its id.
inline constexpr const char* kAdminKeyName = "admin-from-environment";

/// A key of the service as it is kept: without its secret, of which only the hash is known.
struct ApiKey {
    std::string id;
    std::string name;  ///< the owner of what is done with it
    api::Role role = api::Role::read;
    std::string sha256;      ///< of the secret, 64 lower-case hex digits
    std::string created_at;  ///< RFC 3339
    std::string last_used;   ///< RFC 3339, to the minute or so; empty = never
};

struct NewApiKey {
    ApiKey key;
    std::string secret;  ///< shown once, kept nowhere
};

/// 1 to 64 letters, digits and `. _ -`, the first a letter or digit.
[[nodiscard]] bool is_key_name(std::string_view text);

/// A secret of 256 random bits: "dk_" and base64url. Throws std::runtime_error where OpenSSL has no random numbers.
[[nodiscard]] NewApiKey make_api_key(std::string name, api::Role role);

/// What a key is known by. The secret is drawn from 2^256, so that one round of SHA-256 cannot be turned round by trial
/// (docs/decisions/0007).
[[nodiscard]] std::string hash_of_secret(std::string_view secret);

/// In a time that does not depend on where the two differ.
[[nodiscard]] bool same_hash(std::string_view one, std::string_view other);

}  // namespace distilld

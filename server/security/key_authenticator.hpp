#pragma once

#include <memory>

#include "server/http/authenticator.hpp"
#include "server/security/key_ring.hpp"

namespace distilld {

struct AuthenticatorOptions {
    bool metrics_open = false;  ///< GET /metrics needs no key
};

/// Requires a bearer key (RFC 6750) of the ring if that protects the service. 401 without a valid key, 403 if its role
/// does not suffice. Unknown paths need a key, too.
[[nodiscard]] std::shared_ptr<http::Authenticator> make_key_authenticator(std::shared_ptr<KeyRing> keys,
                                                                          AuthenticatorOptions options = {});

}  // namespace distilld

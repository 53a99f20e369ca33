#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/http/authenticator.hpp"

namespace distilld {

enum class TokenStanding {
    known,
    unknown,
    not_yet,  ///< the service does not know all tokens yet: ask again
};

/// Looks up a token by its hash (hash_of_secret()), comparing in constant time. The server's executor; must not block.
using TokenLookup = std::function<TokenStanding(const std::string& hash)>;

/// Requires a bearer token for one route, whatever the keys of the service are. The caller's id is the token's hash;
/// it may only read. 401 with `unknown_code` (in WWW-Authenticate, too) without a known token, 503 if it is too early
/// to say.
[[nodiscard]] std::shared_ptr<http::Authenticator> make_token_authenticator(std::string name, std::string unknown_code,
                                                                            TokenLookup lookup);

}  // namespace distilld

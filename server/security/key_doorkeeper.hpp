#pragma once

#include <memory>

#include "server/http/doorkeeper.hpp"
#include "server/security/key_ring.hpp"

namespace distilld {

struct DoorkeeperOptions {
    bool metrics_open = false;  ///< GET /metrics needs no key
};

/// Asks for a bearer key (RFC 6750) of the ring, while that protects. 401 without a key or with a wrong one, 403 with
/// one whose role is too small; a path that does not exist is no secret, but takes a key as well.
[[nodiscard]] std::shared_ptr<http::Doorkeeper> make_key_doorkeeper(std::shared_ptr<KeyRing> keys,
                                                                    DoorkeeperOptions options = {});

}  // namespace distilld

#pragma once

#include "server/http/http_server.hpp"
#include "server/supervisor/remote_attempts.hpp"

namespace distilld {

/// The door of the relays of remote workers: GET /v1/attempts/channel, a WebSocket for whoever has the token of an
/// attempt. Only services with such workers have it. `attempts` must outlive the route.
[[nodiscard]] http::Route make_attempt_route(RemoteAttempts& attempts);

}  // namespace distilld

#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <optional>
#include <string>

#include "api/http_message.hpp"
#include "server/http/connection.hpp"
#include "server/http/http_server.hpp"

namespace distilld::http {

/// The handler's answer, or the one that says why there is none: 503 when `deadline` has passed, 500 after an exception
/// (the log then has `label` and what it said). Nothing when the client has gone and the route is only for it: the
/// handler was cancelled. `route` lives as long as the server's routing table.
boost::asio::awaitable<std::optional<api::Response>> call_handler(Connection& connection, const Route& route,
                                                                  api::Request request, std::chrono::seconds deadline,
                                                                  std::string label);

}  // namespace distilld::http

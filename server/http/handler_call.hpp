#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <optional>
#include <string>

#include "server/http/connection.hpp"
#include "server/http/http_message.hpp"
#include "server/http/http_server.hpp"

namespace distilld::http {

/// The handler's answer, or one that says why there is none: 503 if `deadline` has passed, 500 after an exception
/// (logged with `label` and the message). nullopt if the client has left and the route is only for the client; the
/// handler was then cancelled. `route` must live as long as the server's routing table.
boost::asio::awaitable<std::optional<http::Response>> call_handler(Connection& connection, const Route& route,
                                                                   http::Request request, std::chrono::seconds deadline,
                                                                   std::string label);

}  // namespace distilld::http

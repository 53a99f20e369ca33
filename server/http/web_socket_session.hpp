#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "server/http/connection.hpp"
#include "server/http/http_message.hpp"
#include "server/http/session_context.hpp"

namespace distilld::http {

/// The Sec-WebSocket-Key of a request that asks for a WebSocket (RFC 6455, section 4.2.1); nullopt: it does not.
[[nodiscard]] std::optional<std::string> web_socket_key(const http::Request& request);

/// The refusal of a request that does not.
[[nodiscard]] http::Response upgrade_required();

/// Answers with `key` and passes messages both ways until one side ends the connection, it breaks, or the server stops.
/// Logs (with `label`) what the peer did wrong, once.
boost::asio::awaitable<void> serve_web_socket(Connection& connection, SessionContext& context,
                                              std::shared_ptr<http::MessagePeer> peer, std::string key,
                                              std::size_t message_limit, std::string label);

}  // namespace distilld::http

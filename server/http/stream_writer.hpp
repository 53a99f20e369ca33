#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>

#include "api/http_message.hpp"
#include "server/http/connection.hpp"
#include "server/http/session_context.hpp"

namespace distilld::http {

/// Pulls a body and sends each piece at once: `chunked`, else as it is. False when it was cut short, because the peer
/// has left, the key of `caller` was revoked, the server stops, or the body failed (logged with `label`): then nothing
/// marks its end, so that the client can tell.
boost::asio::awaitable<bool> write_stream(Connection& connection, SessionContext& context,
                                          std::unique_ptr<api::BodyStream> body, bool chunked,
                                          std::optional<api::Caller> caller, std::string label);

}  // namespace distilld::http

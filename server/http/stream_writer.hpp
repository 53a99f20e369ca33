#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>

#include "server/http/connection.hpp"
#include "server/http/http_message.hpp"
#include "server/http/session_context.hpp"

namespace distilld::http {

/// Returns when the time of streams is over, because the server stops.
boost::asio::awaitable<void> until_streams_are_over(SessionContext& context);

/// Sends each piece of a body at once, `chunked` or as it is. False if it was cut off because the peer left, the key of
/// `caller` was revoked, the server stops, or the body failed (logged with `label`). The end is then not marked, so the
/// client can tell.
boost::asio::awaitable<bool> write_stream(Connection& connection, SessionContext& context,
                                          std::unique_ptr<http::BodyStream> body, bool chunked,
                                          std::optional<http::Caller> caller, std::string label);

}  // namespace distilld::http

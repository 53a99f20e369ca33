#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>

#include "server/http/connection.hpp"
#include "server/http/http_message.hpp"
#include "server/http/reply.hpp"
#include "server/http/session_context.hpp"
#include "server/http/streamed_body.hpp"

namespace distilld::http {

/// A request with its route, or with the answer that refuses it.
struct IncomingRequest {
    Reply reply;
    http::Request request;
    std::shared_ptr<StreamedBody> body;     ///< set when the handler reads the body itself
    const Route* route = nullptr;           ///< lives as long as the server's routing table
    bool open = false;                      ///< see RouteMatch
    std::optional<http::Response> refusal;  ///< set if there is no route, or the request is invalid
};

/// Reads the next request within the server's deadlines and limits. The connection stops being idle once the header is
/// there. The body of a refused request is still read if it is within the limit, to keep the connection usable;
/// otherwise `reply.keep_alive` is off. After a refusal by OriginCheck or the Authenticator the body is not read.
/// nullopt: the peer has left, was too slow or broke off.
boost::asio::awaitable<std::optional<IncomingRequest>> read_request(Connection& connection, SessionContext& context);

/// The same for a server at its limit: only vital routes are answered, others get 503. The deadline is short, no body
/// is read, and the connection is not kept. nullopt: no valid header in time.
boost::asio::awaitable<std::optional<IncomingRequest>> read_request_when_full(Connection& connection,
                                                                              SessionContext& context);

}  // namespace distilld::http

#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <optional>

#include "api/http_message.hpp"
#include "server/http/connection.hpp"
#include "server/http/reply.hpp"
#include "server/http/session_context.hpp"
#include "server/http/streamed_body.hpp"

namespace distilld::http {

/// A request, and either the route that takes it or the answer that refuses it.
struct IncomingRequest {
    Reply reply;
    api::Request request;
    std::shared_ptr<StreamedBody> body;    ///< set when the handler reads the body itself
    const Route* route = nullptr;          ///< lives as long as the server's routing table
    bool open = false;                     ///< see RouteMatch
    std::optional<api::Response> refusal;  ///< set when there is no route, or the request is at fault
};

/// Reads the next request within the server's deadlines and limits; the connection is no longer idle once its header is
/// there. The body of a refused request is still read while it is within the limit, so that the connection stays of use
/// (else `reply.keep_alive` is off), unless the request came from where none is wanted (request_gate.hpp). Nothing: the
/// peer has left, was too slow or broke off: there is nobody to tell.
boost::asio::awaitable<std::optional<IncomingRequest>> read_request(Connection& connection, SessionContext& context);

/// The same for a server that is full: of what comes within a short deadline all but vital routes is refused with 503.
/// No body is read, and the connection is not kept.
boost::asio::awaitable<std::optional<IncomingRequest>> read_request_when_full(Connection& connection,
                                                                              SessionContext& context);

}  // namespace distilld::http

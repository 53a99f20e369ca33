#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>

#include "api/http_message.hpp"
#include "server/http/connection.hpp"
#include "server/http/reply.hpp"

namespace distilld::http {

/// Status line and fields without a body: all of an answer to HEAD or with status 204 or 304, and what goes before a
/// stream (whose length is announced where it is known; else chunked where the client knows HTTP/1.1).
boost::asio::awaitable<boost::system::error_code> write_head(Connection& connection, const api::Response& response,
                                                             const Reply& reply);

/// A whole answer, `response.stream` excepted.
boost::asio::awaitable<boost::system::error_code> write_response(Connection& connection, api::Response response,
                                                                 const Reply& reply);

}  // namespace distilld::http

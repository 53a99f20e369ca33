#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/system/error_code.hpp>

#include "server/http/connection.hpp"
#include "server/http/http_message.hpp"
#include "server/http/reply.hpp"

namespace distilld::http {

/// Writes a whole answer, or only the head of one with a stream. The stream is announced with its length if that is
/// known; otherwise it is chunked if the client speaks HTTP/1.1.
boost::asio::awaitable<boost::system::error_code> write_response(Connection& connection, const http::Response& response,
                                                                 const Reply& reply);

}  // namespace distilld::http

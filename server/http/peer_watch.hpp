#pragma once

#include <boost/asio/awaitable.hpp>

#include "server/http/connection.hpp"

namespace distilld::http {

/// Returns when the peer has closed its end; to be cancelled when that is of no interest any more. A peer that sends on
/// (pipelining) is there: its bytes stay in the socket, and from then on only a failed write tells that it left.
/// Nothing else may read the connection meanwhile.
boost::asio::awaitable<void> until_peer_leaves(Connection& connection);

}  // namespace distilld::http

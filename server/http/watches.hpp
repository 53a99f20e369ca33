#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>

#include "server/http/authenticator.hpp"
#include "server/http/caller.hpp"
#include "server/http/connection.hpp"

namespace distilld::http {

/// Returns when the peer has closed its end; the caller cancels the wait. If the peer sends more (pipelining), it is
/// present: its bytes stay in the socket, and on a plain connection only a failed write then shows that it left.
/// Nothing else may read the connection meanwhile.
boost::asio::awaitable<void> until_peer_leaves(Connection& connection);

/// Returns at most half a second after the authenticator stopped accepting the caller; the caller of this function
/// cancels the wait.
boost::asio::awaitable<void> until_revoked(std::shared_ptr<Authenticator> authenticator, http::Caller caller);

}  // namespace distilld::http

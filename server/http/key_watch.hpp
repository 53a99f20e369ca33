#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>

#include "api/caller.hpp"
#include "server/http/doorkeeper.hpp"

namespace distilld::http {

/// Returns when the doorkeeper no longer lets the caller in, at most half a second later; to be cancelled when that is
/// of no interest any more.
boost::asio::awaitable<void> until_revoked(std::shared_ptr<Doorkeeper> doorkeeper, api::Caller caller);

}  // namespace distilld::http

#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "pipeline/async/condition.hpp"
#include "server/http/http_server.hpp"
#include "server/http/origin_check.hpp"
#include "server/http/reply.hpp"
#include "server/http/router.hpp"

namespace distilld::http {

/// What all sessions of a server share. One executor.
struct SessionContext {
    SessionContext(const boost::asio::any_io_executor& executor, ServerOptions options_in, OriginCheck origin_check_in,
                   Router router_in, Observer observer_in);

    /// request_id_prefix and a running number.
    [[nodiscard]] std::string next_request_id();
    /// Who decides about requests for a route (null = none); null: everyone may ask.
    [[nodiscard]] const std::shared_ptr<Authenticator>& authenticator_of(const Route* route) const;
    /// Calls the observer, and the auditor for methods other than GET and HEAD. `made`: Location of what the answer
    /// created; empty = nothing.
    void observe(const Reply& reply, unsigned status, std::string_view made = {}) const;

    ServerOptions options;
    OriginCheck origin_check;
    Router router;
    Observer observer;
    bool stopping = false;
    std::chrono::steady_clock::time_point streams_end;  ///< while stopping: streams still open then are cut off
    Condition stop_changed;                             ///< notified by each stop of the server
    std::string request_id_prefix;                      ///< random, one per server
    std::uint64_t requests = 0;
    std::uint32_t streams = 0;  ///< number of open streams
};

}  // namespace distilld::http

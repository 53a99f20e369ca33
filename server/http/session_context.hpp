#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "pipeline/async/condition.hpp"
#include "server/http/http_server.hpp"
#include "server/http/reply.hpp"
#include "server/http/request_gate.hpp"
#include "server/http/router.hpp"

namespace distilld::http {

/// What all sessions of a server share. One executor.
struct SessionContext {
    SessionContext(const boost::asio::any_io_executor& executor, ServerOptions options_in, RequestGate gate_in,
                   Router router_in, Observer observer_in);

    /// The server's prefix and a running number.
    [[nodiscard]] std::string next_request_id();
    /// Tells the observer of an answer, and the auditor of one to what would change something. `made`: the Location of
    /// what the answer has made; empty = nothing.
    void observe(const Reply& reply, unsigned status, std::string_view made = {}) const;

    ServerOptions options;
    RequestGate gate;
    Router router;
    Observer observer;
    bool stopping = false;
    std::chrono::steady_clock::time_point streams_end;  ///< when stopping: streams that go on then are cut short
    Condition stop_changed;                             ///< notified by each stop of the server
    std::string request_id_prefix;                      ///< random, of this server
    std::uint64_t requests = 0;
    std::uint32_t streams = 0;  ///< under way
};

}  // namespace distilld::http

#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "net/endpoint_url.hpp"
#include "net/web_socket.hpp"
#include "server/supervisor/worker_output.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld {

struct RelayOptions {
    EndpointUrl service;  ///< its channel (kAttemptChannelPath)
    std::string token;
    std::shared_ptr<boost::asio::ssl::context> tls{};  ///< for https
    std::string user_agent;
    /// A connection to the service that has not said anything yet. Empty: over TCP, to `service`.
    std::function<boost::asio::awaitable<Result<std::shared_ptr<WebSocket>>>()> dial{};
    /// A worker for the spec (null: it is not valid) that hands its output to the sink. An error: it cannot be here.
    std::function<Result<std::unique_ptr<WorkerProcess>>(const JobSpec*, WorkerOutput::LineSink)> make_worker;
    std::function<void(const std::string&)> say;  ///< takes lines about the connection
    std::chrono::milliseconds min_pause{1000};    ///< before connecting again; doubles each time
    std::chrono::milliseconds max_pause{15000};
    std::chrono::seconds patience{600};  ///< without the service: for its order, and for it to get the last messages
};

/// Runs the worker of one attempt for a service on another machine, and speaks for it. The worker trains on while the
/// service cannot be reached; what it says meanwhile is kept, of progress only the newest, and of its output the newest
/// MiB. One executor.
class Relay {
  public:
    Relay(boost::asio::any_io_executor executor, RelayOptions options);
    Relay(const Relay&) = delete;
    Relay& operator=(const Relay&) = delete;
    ~Relay();

    /// Returns when the worker has ended and the service knows, or when the service has said that the attempt is over;
    /// the worker is ended then. An error: the service was not reached for too long, and what it does not know.
    boost::asio::awaitable<Result<void>> run();

    /// The place is to end. First call: the worker writes a checkpoint and ends, and the service is told. Second: it is
    /// killed.
    void stop();

    struct State;  // for relay.cpp

  private:
    std::shared_ptr<State> state_;
};

}  // namespace distilld

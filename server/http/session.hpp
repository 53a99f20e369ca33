#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/http/http_server.hpp"
#include "server/http/router.hpp"

namespace distilld::http {

/// What all sessions of a server share. One executor.
struct SessionContext {
    ServerOptions options;
    Router router;
    Observer observer;
    bool stopping = false;
    std::chrono::steady_clock::time_point streams_end;  ///< when stopping: streams that go on then are cut short
    std::string request_id_prefix;                      ///< random, of this server
    std::uint64_t requests = 0;
};

/// One connection: reads requests, answers them in order.
class Session {
  public:
    Session(boost::asio::ip::tcp::socket socket, std::shared_ptr<SessionContext> context);

    /// Serves until the peer leaves, an error, or the server stops. `this` must outlive it.
    boost::asio::awaitable<void> run();

    /// Answers one request with 503 and closes: the server is full.
    boost::asio::awaitable<void> refuse();

    /// The server stops: ends what waits for the peer, and streams at streams_end; an answer under way goes on.
    void stop();

    /// Ends run() at once.
    void cancel() { signal_.emit(boost::asio::cancellation_type::terminal); }
    [[nodiscard]] boost::asio::cancellation_slot cancellation_slot() { return signal_.slot(); }

  private:
    enum class Phase { waiting, answering, streaming };
    /// What the answer must know of its request.
    struct Reply {
        std::string method;  ///< a known method, else "OTHER": it becomes a metric's label
        std::string pattern = "unmatched";
        std::string request_id;
        std::chrono::steady_clock::time_point started;
        unsigned version = 11;
        bool keep_alive = false;
        bool head = false;
    };

    boost::asio::awaitable<bool> exchange();
    /// Nothing when the client has gone and the route is only for it.
    boost::asio::awaitable<std::optional<api::Response>> call_handler(const Route* route, api::Request request,
                                                                      std::string label);
    boost::asio::awaitable<bool> send(api::Response response, Reply reply);
    boost::asio::awaitable<bool> send_stream(api::Response response, Reply reply);
    boost::asio::awaitable<void> forever();
    boost::asio::awaitable<void> until_peer_leaves(bool streaming);
    boost::asio::awaitable<void> close(bool linger);
    [[nodiscard]] std::string next_request_id();
    void observe(const Reply& reply, unsigned status) const;

    std::shared_ptr<SessionContext> context_;
    boost::beast::tcp_stream stream_;
    boost::beast::flat_buffer buffer_;
    boost::asio::steady_timer forever_;  ///< what the peer watch waits on once there is unread data
    boost::asio::cancellation_signal signal_;
    std::string remote_;
    Phase phase_ = Phase::waiting;
};

}  // namespace distilld::http

#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "server/http/connection.hpp"
#include "server/http/request_reader.hpp"
#include "server/http/session_context.hpp"

namespace distilld::http {

/// One connection: reads requests, answers them in order.
class Session {
  public:
    Session(boost::asio::ip::tcp::socket socket, std::shared_ptr<SessionContext> context);

    /// Serves until the peer leaves, an error, or the server stops. `this` must outlive it.
    boost::asio::awaitable<void> run();

    /// The server is full: one request is answered, with 503 unless it is for a vital route.
    boost::asio::awaitable<void> run_when_full();

    /// The server stops: ends a wait for the peer's next request; an answer under way goes on, and a stream until
    /// SessionContext::streams_end.
    void stop();

  private:
    /// False: the peer is no client of ours.
    boost::asio::awaitable<bool> shake_hands(std::chrono::seconds timeout);
    /// False: the connection ends.
    boost::asio::awaitable<bool> wait_for_peer(std::chrono::seconds timeout);
    boost::asio::awaitable<bool> exchange();
    boost::asio::awaitable<bool> answer(IncomingRequest incoming);
    boost::asio::awaitable<bool> send(api::Response response, Reply reply);
    boost::asio::awaitable<bool> send_stream(api::Response response, Reply reply, std::optional<api::Caller> caller);
    boost::asio::awaitable<void> close(bool linger);

    std::shared_ptr<SessionContext> context_;
    Connection connection_;
};

}  // namespace distilld::http

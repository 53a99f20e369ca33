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

    /// Serves until the peer leaves, an error, or the server stops. `*this` must outlive the coroutine.
    boost::asio::awaitable<void> run();

    /// For a server at its limit: answers one request, with 503 unless its route is vital.
    boost::asio::awaitable<void> run_when_full();

    /// Called when the server stops. Ends a wait for the peer's next request. An answer under way continues, a stream
    /// until SessionContext::streams_end.
    void stop();

  private:
    /// False: the handshake failed.
    boost::asio::awaitable<bool> shake_hands(std::chrono::seconds timeout);
    /// False: end the connection.
    boost::asio::awaitable<bool> wait_for_peer(std::chrono::seconds timeout);
    boost::asio::awaitable<bool> exchange();
    boost::asio::awaitable<bool> answer(IncomingRequest incoming);
    boost::asio::awaitable<bool> send(http::Response response, Reply reply);
    boost::asio::awaitable<bool> send_stream(http::Response response, Reply reply, std::optional<http::Caller> caller);
    boost::asio::awaitable<void> pass_messages(std::shared_ptr<http::MessagePeer> peer, std::string key,
                                               std::size_t message_limit, Reply reply);
    boost::asio::awaitable<void> close(bool linger);

    std::shared_ptr<SessionContext> context_;
    Connection connection_;
};

}  // namespace distilld::http

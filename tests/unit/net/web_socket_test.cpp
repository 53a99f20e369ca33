#include "net/web_socket.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "net/tls_context.hpp"
#include "pipeline/async/abort.hpp"
#include "pipeline/async/deadline.hpp"
#include "tests/support/scripted_http_server.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr const char* kKey = "dGhlIHNhbXBsZSBub25jZQ==";  // RFC 6455, section 1.3

class WebSocketTest : public ::testing::Test {
  protected:
    /// Both ends of a connection.
    void connect(asio::ssl::context* server_tls = nullptr, asio::ssl::context* client_tls = nullptr) {
        tcp::acceptor acceptor(context, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
        tcp::socket near(context);
        near.connect(acceptor.local_endpoint());
        server = std::make_unique<ByteStream>(acceptor.accept(), server_tls);
        client = std::make_unique<ByteStream>(std::move(near), client_tls);
    }
    template <class T>
    T run(asio::awaitable<T> task) {
        auto future = asio::co_spawn(context, std::move(task), asio::use_future);
        context.restart();
        context.run();
        return future.get();
    }

    asio::io_context context{1};
    std::unique_ptr<ByteStream> server;
    std::unique_ptr<ByteStream> client;
};

asio::awaitable<void> discard_request(ByteStream& stream) {
    std::string request(4096, '\0');
    const auto read = co_await stream.read_some(asio::buffer(request));
    EXPECT_GT(read.bytes, 0U);
}

/// Accepts the client and returns its request.
asio::awaitable<std::string> accept_client(ByteStream& stream, WebSocket& socket) {
    std::string request(4096, '\0');
    const auto read = co_await stream.read_some(asio::buffer(request));
    request.resize(read.bytes);
    const auto at = request.find("Sec-WebSocket-Key: ") + 19;
    const auto refused = co_await socket.accept(request.substr(at, 24));
    EXPECT_FALSE(refused) << refused.message();
    co_return request;
}

/// The client's request.
asio::awaitable<std::string> serve_one(ByteStream& stream) {
    co_await stream.handshake(asio::ssl::stream_base::server);
    const auto socket = make_web_socket(stream, {});
    auto request = co_await accept_client(stream, *socket);
    auto message = co_await socket->read();
    co_await socket->write(message.text + " yourself");
    WebSocketClose why{4000, "over"};
    co_await socket->close(why);
    co_return request;
}

asio::awaitable<std::pair<std::string, WebSocketMessage>> ask_one(ByteStream& stream) {
    const auto shaken = co_await stream.handshake_with("localhost");
    EXPECT_FALSE(shaken.failure) << shaken.why;
    const auto socket = make_web_socket(stream, {});
    const auto opened = co_await socket->open("localhost", "/there", "dt_token", "tester");
    EXPECT_FALSE(opened.failure) << opened.failure.message();
    co_await socket->write("hello");
    auto answer = co_await socket->read();
    auto end = co_await socket->read();
    co_return std::pair(answer.text, end);
}

TEST_F(WebSocketTest, SpeaksOverTls) {
    const auto identity = test::make_self_signed_identity("localhost");
    const test::TemporaryFolder folder;
    const auto certificate = folder.write("c.pem", identity.certificate_pem);
    const auto key = folder.write("k.pem", identity.key_pem);
    const auto server_tls = make_tls_server_context({.certificate = certificate, .key = key}).value();
    const auto client_tls = make_tls_client_context({.ca = certificate}).value();
    connect(server_tls.get(), client_tls.get());
    auto served = asio::co_spawn(context, serve_one(*server), asio::use_future);
    const auto [answer, end] = run(ask_one(*client));
    EXPECT_EQ(answer, "hello yourself");
    ASSERT_TRUE(end.closed.has_value());
    EXPECT_EQ(end.closed->code, 4000);
    EXPECT_EQ(end.closed->reason, "over");
    const auto request = served.get();
    EXPECT_THAT(request, testing::StartsWith("GET /there HTTP/1.1\r\nHost: localhost\r\n"));
    EXPECT_THAT(request, testing::HasSubstr("Authorization: Bearer dt_token\r\n"));
}

asio::awaitable<void> close_client(ByteStream& stream) {
    const auto socket = make_web_socket(stream, {});
    co_await accept_client(stream, *socket);
    WebSocketClose why{4001, "replaced"};
    co_await socket->close(why);
}

asio::awaitable<std::pair<WebSocketMessage, boost::system::error_code>> use_closed(ByteStream& stream) {
    const auto socket = make_web_socket(stream, {});
    const auto opened = co_await socket->open("localhost", "/", "dt_token", "tester");
    EXPECT_FALSE(opened.failure) << opened.failure.message();
    co_await socket->read();
    const auto failed = co_await socket->write("hello");
    auto end = co_await socket->read();
    co_return std::pair(end, failed);
}

TEST_F(WebSocketTest, WhatFailsAfterTheEndIsNoCancellation) {
    connect();
    auto served = asio::co_spawn(context, close_client(*server), asio::use_future);
    const auto [end, failed] = run(use_closed(*client));
    ASSERT_TRUE(end.closed.has_value());
    EXPECT_EQ(end.closed->code, 4001);
    EXPECT_EQ(failed, asio::error::not_connected);
    served.get();
}

asio::awaitable<WebSocket::Opened> open_at(ByteStream& stream) {
    const auto socket = make_web_socket(stream, {});
    co_return co_await socket->open("localhost", "/", "dt_token", "tester");
}

asio::awaitable<void> read_cancelled(WebSocket& socket, bool& thrown) {
    try {
        co_await socket.read();
    } catch (const boost::system::system_error& error) {
        thrown = is_abort(error.code());
    }
}

/// Whether the cancelled read threw.
asio::awaitable<bool> cancel_read(ByteStream& stream) {
    const auto socket = make_web_socket(stream, {});
    co_await accept_client(stream, *socket);
    bool thrown = false;
    const bool in_time = co_await with_deadline(read_cancelled(*socket, thrown), std::chrono::milliseconds(1));
    EXPECT_FALSE(in_time);
    co_return thrown;
}

TEST_F(WebSocketTest, ACancelledReadThrows) {
    connect();
    auto opened = asio::co_spawn(context, open_at(*client), asio::use_future);
    EXPECT_TRUE(run(cancel_read(*server)));
    EXPECT_FALSE(opened.get().failure);
}

asio::awaitable<WebSocketMessage> read_with(ByteStream& stream, WebSocketLimits limits) {
    const auto socket = make_web_socket(stream, limits);
    const auto refused = co_await socket->accept(kKey);
    EXPECT_FALSE(refused);
    co_return co_await socket->read();
}

TEST_F(WebSocketTest, APeerThatAnswersNoPingIsGone) {
    connect();
    WebSocketLimits limits;
    limits.silence = std::chrono::seconds(1);
    const auto message = run(read_with(*server, limits));
    EXPECT_TRUE(message.failure);
    EXPECT_FALSE(message.closed.has_value());
}

asio::awaitable<boost::system::error_code> write_with(ByteStream& stream, WebSocketLimits limits) {
    const auto socket = make_web_socket(stream, limits);
    const auto refused = co_await socket->accept(kKey);
    EXPECT_FALSE(refused);
    co_return co_await socket->write(std::string(std::size_t{64} << 20, 'x'));
}

TEST_F(WebSocketTest, APeerThatReadsNothingIsGone) {
    connect();
    WebSocketLimits limits;
    limits.write = std::chrono::seconds(1);
    EXPECT_EQ(run(write_with(*server, limits)), asio::error::timed_out);
}

asio::awaitable<void> answer_with(ByteStream& stream, std::string answer) {
    co_await discard_request(stream);
    co_await stream.write(asio::buffer(answer));
    stream.close();
}

TEST_F(WebSocketTest, SaysHowAServerRefused) {
    for (const auto& [answer, status, challenge] : {
             std::tuple(
                 "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer error=\"x\"\r\nContent-Length: 2\r\n\r\n{}",
                 401U, "Bearer error=\"x\""),
             std::tuple("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200U, ""),
             std::tuple("SSH-2.0-OpenSSH\r\n", 0U, ""),
             std::tuple("", 0U, ""),
         }) {
        connect();
        auto answered = asio::co_spawn(context, answer_with(*server, answer), asio::use_future);
        const auto opened = run(open_at(*client));
        EXPECT_TRUE(opened.failure) << answer;
        EXPECT_EQ(opened.status, status) << answer;
        EXPECT_EQ(opened.challenge, challenge) << answer;
        answered.get();
    }
}

}  // namespace
}  // namespace distilld

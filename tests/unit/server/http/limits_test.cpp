#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <string>

#include "tests/unit/server/http/raw_client.hpp"
#include "tests/unit/server/http/server_fixture.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
using test::get;
using test::HttpServer;
using test::post;
using test::RawClient;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(HttpServer, RefusesLargeBodies) {
    ServerOptions options;
    options.body_limit = 1000;
    start(options);
    {
        RawClient client(server_->address());
        client.write(post("/echo", std::string(1000, 'a')));
        EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 200 OK"));
        client.write(post("/echo", std::string(1001, 'a')));
        EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 413 "));
    }
    {
        // A length that nobody could hold: refused by what the header says.
        RawClient client(server_->address());
        client.write("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 99999999999999\r\n\r\n");
        EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 413 "));
    }
    {
        RawClient client(server_->address());
        client.write("POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
        for (int i = 0; i < 3; ++i) {
            client.write("190\r\n" + std::string(400, 'b') + "\r\n");
        }
        EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 413 "));
    }
    {
        RawClient client(server_->address());
        client.write("POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.write("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
        EXPECT_THAT(client.read_response(), HasSubstr("\r\n\r\nabcde"));
    }
}

TEST_F(HttpServer, RefusesLargeHeaders) {
    start();
    RawClient client(server_->address());
    client.write(get("/hello", "X-Long: " + std::string(40000, 'a') + "\r\n"));
    EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpServer, RefusesConnectionsBeyondTheLimit) {
    ServerOptions options;
    options.max_connections = 2;
    start(options);
    RawClient first(server_->address());
    RawClient second(server_->address());
    first.write(get("/hello"));
    first.read_response();
    second.write(get("/hello"));
    second.read_response();
    {
        RawClient third(server_->address());
        third.write(get("/hello"));
        const auto response = third.read_all();
        EXPECT_THAT(response, StartsWith("HTTP/1.1 503 "));
        EXPECT_THAT(response, HasSubstr("Retry-After: "));
    }
    second.close();
    // The place becomes free once the server has seen the close.
    std::string response;
    for (int i = 0; i < 200 && !response.starts_with("HTTP/1.1 200"); ++i) {
        RawClient third(server_->address());
        third.write(get("/hello", "Connection: close\r\n"));
        response = third.read_all();
    }
    EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(HttpServer, AnswersVitalRequestsWhenItIsFull) {
    ServerOptions options;
    options.max_connections = 2;
    start(options);
    RawClient first(server_->address());
    RawClient second(server_->address());
    for (auto* client : {&first, &second}) {
        client->write(get("/hello"));
        client->read_response();
    }
    for (int i = 0; i < 3; ++i) {
        RawClient prober(server_->address());
        prober.write(get("/probe"));
        const auto response = prober.read_all();
        EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK"));
        EXPECT_THAT(response, HasSubstr("Connection: close\r\n"));
        EXPECT_THAT(response, HasSubstr("\r\n\r\nalive"));
    }
    RawClient other(server_->address());
    other.write(get("/hello"));
    EXPECT_THAT(other.read_all(), StartsWith("HTTP/1.1 503 "));
}

TEST_F(HttpServer, BoundsStreamsBelowItsConnections) {
    ServerOptions options;
    options.max_streams = 2;
    start(options);
    RawClient first(server_->address());
    RawClient second(server_->address());
    for (auto* client : {&first, &second}) {
        client->write(get("/endless"));
        client->read_until("tick");
    }
    RawClient third(server_->address());
    third.write(get("/endless"));
    const auto refused = third.read_response();
    EXPECT_THAT(refused, StartsWith("HTTP/1.1 503 "));
    EXPECT_THAT(refused, HasSubstr("Retry-After: "));
    EXPECT_THAT(refused, HasSubstr("the server has no free stream"));
    third.write(get("/hello"));  // all else goes on, on the same connection
    EXPECT_THAT(third.read_response(), StartsWith("HTTP/1.1 200 OK"));
    second.close();
    std::string response;
    for (int i = 0; i < 2000 && !response.starts_with("HTTP/1.1 200"); ++i) {
        third.write(get("/endless"));
        response = third.read_until("\r\n\r\n");
        if (!response.starts_with("HTTP/1.1 200")) {
            third.read_until("}}");
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    }
    EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(HttpServer, ClosesOnASlowHeader) {
    ServerOptions options;
    options.header_timeout = std::chrono::seconds(1);
    start(options);
    RawClient silent(server_->address());
    RawClient slow(server_->address());
    slow.write("GET /hello HTTP/1.1\r\nHost: te");
    EXPECT_EQ(slow.read_all(), "");
    EXPECT_EQ(silent.read_all(), "");
}

TEST_F(HttpServer, ClosesIdleConnections) {
    ServerOptions options;
    options.idle_timeout = std::chrono::seconds(1);
    start(options);
    RawClient client(server_->address());
    client.write(get("/hello"));
    EXPECT_THAT(client.read_all(), HasSubstr("hello"));
}

TEST_F(HttpServer, GivesUpOnAHandlerThatTakesTooLong) {
    ServerOptions options;
    options.handler_timeout = std::chrono::seconds(1);
    start(options);
    RawClient client(server_->address());
    client.write(get("/never"));
    EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 503 "));
    EXPECT_TRUE(noted("handler cancelled"));
    client.write(get("/hello"));
    EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 200 OK"));
}

TEST(MakeServer, NamesAnAddressItCannotListenOn) {
    asio::io_context context;
    ServerOptions options;
    auto first = make_server(context.get_executor(), options, {});
    ASSERT_TRUE(first.has_value());
    options.listen = (*first)->address();
    auto wrong = options;
    wrong.hosts = {"http://jobs.example"};
    const auto judged = make_server(context.get_executor(), wrong, {});
    ASSERT_FALSE(judged);
    EXPECT_THAT(judged.error().message, HasSubstr("http://jobs.example")) << "that is looked at before the socket";
    auto second = make_server(context.get_executor(), options, {});
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().kind, ErrorKind::io);
    EXPECT_THAT(second.error().message, HasSubstr(options.listen));
    for (const char* bad : {"", "8500", "127.0.0.1:", ":8500", "127.0.0.1:99999", "127.0.0.1:80x", "::1:80"}) {
        options.listen = bad;
        auto refused = make_server(context.get_executor(), options, {});
        ASSERT_FALSE(refused.has_value()) << bad;
        EXPECT_EQ(refused.error().kind, ErrorKind::invalid_input);
    }
}

}  // namespace
}  // namespace distilld::http

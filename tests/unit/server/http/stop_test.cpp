#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/unit/server/http/raw_client.hpp"
#include "tests/unit/server/http/server_fixture.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
using test::get;
using test::HttpServer;
using test::RawClient;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(HttpServer, StopEndsStreamsAndIdleConnections) {
    start();
    RawClient idle(server_->address());
    idle.write(get("/hello"));
    idle.read_response();
    RawClient streaming(server_->address());
    streaming.write(get("/endless"));
    streaming.read_until("tick\r\n4\r\ntick\r\n");
    stop(std::chrono::seconds(3600));
    EXPECT_EQ(ended_.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_EQ(idle.read_all(), "");
    EXPECT_EQ(streaming.read_all(), "");  // no last chunk: the body was cut short
    EXPECT_TRUE(noted("pull cancelled"));
    EXPECT_THROW(RawClient(server_->address()), std::runtime_error);
}

TEST_F(HttpServer, StopLetsAnswersUnderWayFinish) {
    start();
    RawClient client(server_->address());
    client.write(get("/slow"));
    ASSERT_TRUE(noted("slow begins"));
    stop(std::chrono::seconds(3600));
    const auto response = client.read_all();
    EXPECT_THAT(response, HasSubstr("\r\n\r\nslow"));
    EXPECT_THAT(response, HasSubstr("Connection: close\r\n"));
    EXPECT_EQ(ended_.wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST_F(HttpServer, StopCancelsAnswersAfterTheGrace) {
    start();
    RawClient client(server_->address());
    client.write(get("/hello") + get("/never"));
    client.read_response();
    ASSERT_TRUE(noted("never begins"));
    stop(std::chrono::seconds(1));
    EXPECT_EQ(ended_.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_TRUE(noted("handler cancelled"));
    EXPECT_EQ(client.read_all(), "");
}

TEST_F(HttpServer, ASecondStopMayShortenTheGrace) {
    start();
    RawClient client(server_->address());
    client.write(get("/never"));
    ASSERT_TRUE(noted("never begins"));
    stop(std::chrono::seconds(3600));
    stop(std::chrono::seconds(0));
    EXPECT_EQ(ended_.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_TRUE(noted("handler cancelled"));
}

TEST_F(HttpServer, StopEndsRefusalsUnderWay) {
    ServerOptions options;
    options.max_connections = 1;
    start(options);
    RawClient client(server_->address());
    client.write(get("/hello"));
    client.read_response();
    RawClient silent(server_->address());
    RawClient refused(server_->address());
    refused.write(get("/hello"));
    EXPECT_THAT(refused.read_all(), HasSubstr("HTTP/1.1 503"));  // so the silent one has been accepted
    stop(std::chrono::seconds(3600));
    EXPECT_EQ(ended_.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_EQ(silent.read_all(), "");
}

// Nothing of a session may touch what is gone when server and context end without a stop; the address sanitizer would
// see it.
TEST_F(HttpServer, TheContextMayBeDestroyedUnderItsSessions) {
    auto context = std::make_unique<asio::io_context>();
    ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.hosts = {"test"};
    auto server = make_server(context->get_executor(), options, routes());
    ASSERT_TRUE(server.has_value()) << server.error().message;
    asio::co_spawn(*context, (*server)->run(), asio::detached);
    std::vector<std::unique_ptr<RawClient>> clients;
    for (const char* path : {"/never", "/for-client/3600000", "/endless", "/hello"}) {
        clients.push_back(std::make_unique<RawClient>((*server)->address()));
        clients.back()->write(get(path));
    }
    const auto begun = [this] {
        const auto lines = log_->take();
        return std::count(lines.begin(), lines.end(), "never begins") +
                   std::count(lines.begin(), lines.end(), "for client begins") ==
               2;
    };
    for (int i = 0; i < 1000 && !begun(); ++i) {
        context->run_for(std::chrono::milliseconds(10));
    }
    ASSERT_TRUE(begun());
    clients[2]->close();
    context->run_for(std::chrono::milliseconds(20));
    server->reset();
    context.reset();
    for (const std::size_t open : {0U, 1U, 3U}) {
        EXPECT_THAT(clients[open]->read_all(), Not(HasSubstr("for client")));
    }
}

TEST_F(HttpServer, CancellingRunStopsTheServer) {
    start();
    RawClient client(server_->address());
    client.write(get("/hello"));
    client.read_response();
    asio::post(context_, [this] { cancel_.emit(asio::cancellation_type::terminal); });
    EXPECT_EQ(ended_.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_EQ(client.read_all(), "");
}

}  // namespace
}  // namespace distilld::http

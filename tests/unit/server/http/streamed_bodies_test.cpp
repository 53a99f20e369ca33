#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/server/http/raw_client.hpp"
#include "tests/unit/server/http/server_fixture.hpp"

namespace distilld::http {
namespace {

using test::get;
using test::HttpServer;
using test::post;
using test::RawClient;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::size_t kLimit = 1U << 20;  // of the route /sizes

std::string chunked(const std::string& target, const std::string& chunks) {
    return "POST " + target + " HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks;
}

TEST_F(HttpServer, HandsABodyOverInPieces) {
    ServerOptions options;
    options.body_limit = 100;  // the route has its own
    start(options);
    RawClient client(server_->address());
    client.write(post("/sizes", std::string(kLimit, 'x')) + post("/sizes", "") + get("/hello"));
    EXPECT_THAT(client.read_response(), HasSubstr("\r\n\r\n1048576 end 1 small"));
    EXPECT_THAT(client.read_response(), HasSubstr("\r\n\r\n0 end 1 small"));
    EXPECT_THAT(client.read_response(), HasSubstr("\r\n\r\nhello"));  // the connection is still of use
    client.write(chunked("/sizes", "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n") + get("/hello"));
    EXPECT_THAT(client.read_response(), HasSubstr("\r\n\r\n5 end 1 small"));
    EXPECT_THAT(client.read_response(), HasSubstr("\r\n\r\nhello"));
}

TEST_F(HttpServer, RefusesABodyThatSaysItIsTooLarge) {
    start();
    RawClient client(server_->address());
    client.write("POST /sizes HTTP/1.1\r\nHost: test\r\nContent-Length: " + std::to_string(kLimit + 1) + "\r\n\r\n");
    EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServer, TellsTheHandlerHowABodyEnds) {
    start();
    {
        RawClient client(server_->address());
        client.write(chunked("/sizes", "110000\r\n" + std::string(0x110000, 'x')));
        const auto response = client.read_all();
        EXPECT_THAT(response, HasSubstr(" end 2 small"));
        EXPECT_THAT(response, HasSubstr("Connection: close"));
    }
    RawClient client(server_->address());
    client.write(chunked("/sizes", "zz\r\n"));
    EXPECT_THAT(client.read_all(), HasSubstr("0 end 3 small"));
}

TEST_F(HttpServer, ClosesWhenAHandlerLeavesABodyUnread) {
    start();
    RawClient client(server_->address());
    client.write("POST /sizes?early=1 HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nGET /hello");
    const auto response = client.read_all();
    EXPECT_THAT(response, HasSubstr("0 end 0 small"));
    EXPECT_THAT(response, HasSubstr("Connection: close"));
    EXPECT_THAT(response, ::testing::Not(HasSubstr("HTTP/1.1 404")));
}

}  // namespace
}  // namespace distilld::http

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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST_F(HttpServer, KeepsTheConnectionAlive) {
    start();
    RawClient client(server_->address());
    for (int i = 0; i < 3; ++i) {
        client.write(get("/hello"));
        const auto response = client.read_response();
        EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n"));
        EXPECT_THAT(response, HasSubstr("Content-Type: text/plain\r\n"));
        EXPECT_THAT(response, HasSubstr("X-Extra: 1\r\n"));
        EXPECT_THAT(response, HasSubstr("x-request-id: "));
        EXPECT_THAT(response, HasSubstr("\r\n\r\nhello"));
    }
    client.write(get("/hello", "Connection: close\r\n"));
    EXPECT_THAT(client.read_all(), HasSubstr("Connection: close\r\n"));
    EXPECT_THAT(log_->take(), ElementsAre("GET /hello 200", "GET /hello 200", "GET /hello 200", "GET /hello 200"));
}

TEST_F(HttpServer, ClosesAfterAnHttp10Request) {
    start();
    RawClient client(server_->address());
    client.write("GET /hello HTTP/1.0\r\n\r\n");
    EXPECT_THAT(client.read_all(), HasSubstr("\r\n\r\nhello"));
}

TEST_F(HttpServer, AnswersPipelinedRequestsInOrder) {
    start();
    RawClient client(server_->address());
    client.write(get("/slow") + post("/echo", "one") + get("/hello") + post("/echo", "two"));
    EXPECT_THAT(client.read_response(), HasSubstr("\r\n\r\nslow"));
    EXPECT_THAT(client.read_response(), HasSubstr("\r\n\r\none"));
    EXPECT_THAT(client.read_response(), HasSubstr("\r\n\r\nhello"));
    EXPECT_THAT(client.read_response(), HasSubstr("\r\n\r\ntwo"));
}

TEST_F(HttpServer, GivesPathParametersQueryAndRequestId) {
    start();
    RawClient client(server_->address());
    client.write(get("/items/a%2Fb%20c?n=1&t=x+y", "X-Request-Id: abc-123\r\n"));
    const auto response = client.read_response();
    EXPECT_THAT(response, HasSubstr("x-request-id: abc-123\r\n"));
    EXPECT_THAT(response, HasSubstr("\r\n\r\n/items/a/b c|a/b c|n=1|t=x y|abc-123"));
    client.write(get("/hello", "X-Request-Id: not valid <script>\r\n"));
    EXPECT_THAT(client.read_response(), Not(HasSubstr("script")));
}

TEST_F(HttpServer, AnswersHeadWithoutABody) {
    start();
    RawClient client(server_->address());
    client.write("HEAD /hello HTTP/1.1\r\nHost: test\r\n\r\n" + get("/hello"));
    const auto head = client.read_response(true);
    EXPECT_THAT(head, HasSubstr("Content-Length: 5\r\n"));
    EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 200 OK"));  // nothing lay between
    client.write("HEAD /endless HTTP/1.1\r\nHost: test\r\n\r\n" + get("/hello"));
    EXPECT_THAT(client.read_response(true), HasSubstr("Transfer-Encoding: chunked\r\n"));
    EXPECT_THAT(client.read_response(), HasSubstr("\r\n\r\nhello"));
}

TEST_F(HttpServer, SendsNoBodyWith204) {
    start();
    RawClient client(server_->address());
    client.write("DELETE /empty HTTP/1.1\r\nHost: test\r\n\r\n" + get("/hello"));
    const auto response = client.read_response();
    EXPECT_THAT(response, StartsWith("HTTP/1.1 204 No Content\r\n"));
    EXPECT_THAT(response, Not(HasSubstr("Content-")));
    EXPECT_THAT(client.read_response(), HasSubstr("\r\n\r\nhello"));
}

TEST_F(HttpServer, SaysWhatIsWrongWithARequestAndGoesOn) {
    start();
    RawClient client(server_->address());
    client.write(get("/none"));
    auto response = client.read_response();
    EXPECT_THAT(response, StartsWith("HTTP/1.1 404 Not Found\r\n"));
    EXPECT_THAT(response, HasSubstr("Content-Type: application/problem+json\r\n"));
    EXPECT_THAT(response, HasSubstr("\"status\":404"));
    EXPECT_THAT(response, HasSubstr("/none"));
    client.write(post("/hello", "some body"));
    response = client.read_response();
    EXPECT_THAT(response, StartsWith("HTTP/1.1 405 Method Not Allowed\r\n"));
    EXPECT_THAT(response, HasSubstr("Allow: GET, HEAD\r\n"));
    client.write("GET /hello HTTP/1.1\r\n\r\n");
    EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 400 Bad Request\r\n"));
    client.write("BREW /hello HTTP/1.1\r\nHost: test\r\n\r\n");
    EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 405"));
    client.write(get("/hello"));
    EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 200 OK"));
    EXPECT_TRUE(noted("GET /hello 200"));
    EXPECT_THAT(log_->take(), ElementsAre("GET unmatched 404", "POST unmatched 405", "GET unmatched 400",
                                          "OTHER unmatched 405", "GET /hello 200"));
}

TEST_F(HttpServer, RefusesWhatIsNotHttp) {
    start();
    RawClient client(server_->address());
    client.write("\x16\x03\x01 this is no HTTP\r\n\r\n");
    EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 400 Bad Request\r\n"));
}

TEST_F(HttpServer, HidesWhatAHandlerThrows) {
    start();
    RawClient client(server_->address());
    for (const char* path : {"/throw", "/throw-early"}) {
        client.write(get(path));
        const auto response = client.read_response();
        EXPECT_THAT(response, StartsWith("HTTP/1.1 500 Internal Server Error\r\n"));
        EXPECT_THAT(response, HasSubstr("application/problem+json"));
        EXPECT_THAT(response, Not(HasSubstr("secret")));
    }
    client.write(get("/hello"));
    EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(HttpServer, AsksForTheBodyOnlyWhenItWantsIt) {
    ServerOptions options;
    options.body_limit = 1000;
    start(options);
    {
        RawClient client(server_->address());
        client.write("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
        EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
        client.write("abc");
        EXPECT_THAT(client.read_response(), HasSubstr("\r\n\r\nabc"));
    }
    {
        RawClient client(server_->address());
        client.write("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: 3000\r\nExpect: 100-continue\r\n\r\n");
        EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 413 "));
    }
    {
        RawClient client(server_->address());
        client.write("POST /none HTTP/1.1\r\nHost: test\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
        EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 404 "));
    }
}

TEST_F(HttpServer, SendsLargeBodiesToASlowReader) {
    start();
    RawClient client(server_->address());
    client.write(get("/large"));
    const auto response = client.read_response();
    EXPECT_EQ(response.size() - response.find("\r\n\r\n") - 4, 8U << 20);
}

}  // namespace
}  // namespace distilld::http

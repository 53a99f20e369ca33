#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/server/http/raw_client.hpp"
#include "tests/unit/server/http/server_fixture.hpp"

namespace distilld::http {
namespace {

using test::get;
using test::HttpServer;
using test::RawClient;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(HttpServer, SendsStreamsInChunks) {
    start();
    RawClient client(server_->address());
    client.write(get("/ticks"));
    EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Transfer-Encoding: chunked\r\n"));
    EXPECT_EQ(client.read_until("0\r\n\r\n"), "4\r\ntick\r\n4\r\ntick\r\n4\r\ntick\r\n0\r\n\r\n");
    client.write(get("/hello"));  // and the connection goes on
    EXPECT_THAT(client.read_response(), HasSubstr("hello"));
}

TEST_F(HttpServer, SendsStreamsPlainToHttp10) {
    start();
    RawClient client(server_->address());
    client.write("GET /ticks HTTP/1.0\r\n\r\n");
    EXPECT_THAT(client.read_all(), ::testing::EndsWith("\r\n\r\ntickticktick"));
}

TEST_F(HttpServer, AStreamOfKnownLengthIsNotChunked) {
    start();
    RawClient client(server_->address());
    client.write(get("/measured"));
    const auto head = client.read_until("\r\n\r\n");
    EXPECT_THAT(head, HasSubstr("Content-Length: 12\r\n"));
    EXPECT_THAT(head, Not(HasSubstr("chunked")));
    EXPECT_EQ(client.read_until("tickticktick"), "tickticktick");
    client.write(get("/hello"));  // and the connection goes on
    EXPECT_THAT(client.read_response(), HasSubstr("hello"));
    RawClient asker(server_->address());
    asker.write("HEAD /measured HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(asker.read_all(), ::testing::AllOf(HasSubstr("Content-Length: 12\r\n"), EndsWith("\r\n\r\n")));
}

TEST_F(HttpServer, StreamSurvivesAPipelinedRequest) {
    start();
    RawClient client(server_->address());
    client.write(get("/ticks"));
    client.write(get("/hello"));
    client.read_until("0\r\n\r\n");
    EXPECT_THAT(client.read_response(), HasSubstr("hello"));
}

TEST_F(HttpServer, CancelsThePullWhenTheClientLeaves) {
    start();
    RawClient client(server_->address());
    client.write(get("/endless"));
    client.read_until("tick\r\n4\r\ntick\r\n");
    client.close();
    EXPECT_TRUE(noted("pull cancelled"));
    EXPECT_TRUE(noted("stream destroyed"));
}

}  // namespace
}  // namespace distilld::http

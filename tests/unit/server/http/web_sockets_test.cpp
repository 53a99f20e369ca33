#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/server/http/raw_client.hpp"
#include "tests/unit/server/http/server_fixture.hpp"

namespace distilld {
namespace {

using test::RawClient;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class WebSockets : public test::HttpServer {};

/// With the example of RFC 6455, section 1.3.
std::string upgrade_request(const std::string& changed = "", const std::string& in_place_of = "") {
    std::string request =
        "GET /echo HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    if (!in_place_of.empty()) {
        request.replace(request.find(in_place_of), in_place_of.size(), changed);
    }
    return request;
}

/// A text frame of a client, with a mask of zeros.
std::string text_frame(const std::string& text) {
    return std::string("\x81") + static_cast<char>(0x80 | text.size()) + std::string(4, '\0') + text;
}

/// What a close frame of the server holds.
std::string close_frame(std::uint16_t code, const std::string& reason) {
    return std::string("\x88") + static_cast<char>(2 + reason.size()) + static_cast<char>(code >> 8) +
           static_cast<char>(code & 0xFF) + reason;
}

TEST_F(WebSockets, PassMessagesBothWays) {
    start();
    RawClient client(server_->address());
    client.write(upgrade_request());
    EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    client.write(text_frame("one") + text_frame("two"));
    EXPECT_THAT(client.read_until("you said one"), EndsWith("you said one"));
    EXPECT_THAT(client.read_until("you said two"), EndsWith("you said two"));
    client.write(text_frame("end"));
    EXPECT_THAT(client.read_until("the end"), EndsWith(close_frame(4002, "the end")));
    EXPECT_TRUE(noted("GET /echo 101"));
}

TEST_F(WebSockets, EndWithWhatMayNotCome) {
    start();
    RawClient refused(server_->address());
    refused.write(upgrade_request());
    refused.read_until("\r\n\r\n");
    refused.write(text_frame("bad"));
    EXPECT_THAT(refused.read_until("that was bad"), EndsWith(close_frame(4001, "that was bad")));
    for (const std::string& wrong :
         {std::string("no frame at all"), std::string("\x81\xff\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00", 14),
          text_frame(std::string(101, 'x')), std::string("\x81\x01x", 3)}) {
        RawClient client(server_->address());
        client.write(upgrade_request());
        client.read_until("\r\n\r\n");
        client.write(wrong);
        while (client.read_more()) {
        }
    }
}

TEST_F(WebSockets, OnlyForThoseWhoAskForOne) {
    start();
    for (const std::string& request :
         {std::string("GET /echo HTTP/1.1\r\nHost: test\r\n\r\n"), upgrade_request("h2c", "websocket"),
          upgrade_request("close", "keep-alive, Upgrade"), upgrade_request("12", "13"),
          upgrade_request("short", "dGhlIHNhbXBsZSBub25jZQ=="), upgrade_request() + text_frame("too early")}) {
        RawClient client(server_->address());
        client.write(request);
        EXPECT_THAT(client.read_until("\r\n\r\n"), StartsWith("HTTP/1.1 426 ")) << request;
    }
}

TEST_F(WebSockets, EndWithTheServer) {
    start();
    RawClient client(server_->address());
    client.write(upgrade_request());
    client.read_until("\r\n\r\n");
    stop(std::chrono::seconds(20));
    while (client.read_more()) {
    }
    EXPECT_EQ(ended_.wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

}  // namespace
}  // namespace distilld

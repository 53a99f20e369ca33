#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "server/http/authenticator.hpp"
#include "tests/support/scripted_http_server.hpp"
#include "tests/unit/server/http/raw_client.hpp"
#include "tests/unit/server/http/server_fixture.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using test::get;
using test::HttpServer;
using test::RawClient;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string repeated(std::size_t times, const std::string& text) {
    std::string all;
    for (std::size_t i = 0; i < times; ++i) {
        all += text;
    }
    return all;
}

/// Fields behind a body that are more than a header may be.
std::vector<std::pair<std::string, std::string>> large_trailers() {
    return {{"value", "X: " + std::string(70'000, 'a') + "\r\n"},
            {"name", std::string(70'000, 'a') + ": x\r\n"},
            {"many", repeated(20'000, "a:b\r\n")},
            {"10,000", repeated(10'000, "X-Trailer: 1\r\n")},
            {"above the header's bound", "X: " + std::string(33'000, 'a') + "\r\n"}};
}

std::string chunked(const std::string& method, const std::string& path, const std::string& trailer) {
    return method + " " + path + " HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" +
           trailer + "\r\n";
}

TEST_F(HttpServer, F1TrailerAbove64KiBIsRefused) {
    start();
    RawClient other(server_->address());
    const std::vector<std::pair<std::string, std::string>> targets{
        {"GET", "/probe"}, {"GET", "/hello"}, {"POST", "/echo"}, {"GET", "/nowhere"}};
    for (const auto& [method, path] : targets) {
        for (const auto& [name, trailer] : large_trailers()) {
            RawClient client(server_->address());
            client.write(chunked(method, path, trailer));
            EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 431 ")) << path << ": " << name;
        }
    }
    other.write(get("/hello"));
    EXPECT_THAT(other.read_response(), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(HttpServer, F1TrailerOfAStreamedBodyIsRefused) {
    start();
    for (const auto& [name, trailer] : large_trailers()) {
        RawClient client(server_->address());
        client.write(chunked("POST", "/sizes", trailer));
        EXPECT_THAT(client.read_response(),
                    HasSubstr(" end " + std::to_string(static_cast<int>(http::BodyEnd::malformed))))
            << name;
        EXPECT_EQ(client.read_all(), "") << name;
    }
}

TEST_F(HttpServer, F1TrailersAreDropped) {
    start();
    RawClient client(server_->address());
    for (int i = 0; i < 2; ++i) {
        client.write(chunked("POST", "/echo", "X-Request-Id: forged\r\nAuthorization: Bearer forged\r\n"));
        const auto answer = client.read_response();
        EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
        EXPECT_THAT(answer, ::testing::EndsWith("\r\n\r\n{}"));
        EXPECT_THAT(answer, Not(HasSubstr("forged")));
    }
}

TEST_F(HttpServer, F1MalformedTrailerIsRefused) {
    start();
    for (const char* trailer : {"Transfer-Encoding: chunked\r\n", "Content-Length: 3\r\n", "no field\r\n"}) {
        RawClient client(server_->address());
        client.write(chunked("POST", "/echo", trailer));
        EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 400 ")) << trailer;
    }
}

TEST_F(HttpServer, F1ChunkExtensionAboveTheBoundOfAHeaderIsRefused) {
    start();
    for (const std::size_t size : {33'000U, 70'000U, 300'000U}) {
        RawClient client(server_->address());
        client.write("POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n2;x=" +
                     std::string(size, 'a') + "\r\n{}\r\n0\r\n\r\n");
        EXPECT_THAT(client.read_all(), StartsWith("HTTP/1.1 431 ")) << size;
    }
    RawClient client(server_->address());
    client.write(
        "POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n2;x=\"y\"\r\n{}\r\n0;z\r\n\r\n");
    EXPECT_THAT(client.read_response(), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_F(HttpServer, F1TrailerAbove64KiBIsRefusedOverTls) {
    const auto identity = test::make_self_signed_identity("localhost");
    ServerOptions options;
    options.tls = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
    options.tls->use_certificate_chain(asio::buffer(identity.certificate_pem));
    options.tls->use_private_key(asio::buffer(identity.key_pem), asio::ssl::context::pem);
    start(options);
    asio::io_context io;
    asio::ssl::context trusting(asio::ssl::context::tls_client);
    for (const auto& [name, trailer] : large_trailers()) {
        asio::ssl::stream<tcp::socket> client(io, trusting);
        const auto address = server_->address();
        const auto port = static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
        client.next_layer().connect(tcp::endpoint(asio::ip::address_v4::loopback(), port));
        client.handshake(asio::ssl::stream_base::client);
        asio::write(client, asio::buffer(chunked("GET", "/probe", trailer)));
        std::string answer(13, '\0');
        asio::read(client, asio::buffer(answer));
        EXPECT_EQ(answer, "HTTP/1.1 431 ") << name;
    }
}

/// Throws at a request of somebody called so.
class ThrowingAuthenticator final : public Authenticator {
  public:
    Authentication judge(const RequestHead& head) override {
        if (head.request.header("x-throw")) {
            throw std::length_error("thrown on purpose");
        }
        return {};
    }
    std::optional<http::Response> revocation(const http::Caller& /*caller*/) override { return std::nullopt; }
};

TEST_F(HttpServer, F1AnExceptionOfOneSessionEndsThatSessionOnly) {
    ServerOptions options;
    options.authenticator = std::make_shared<ThrowingAuthenticator>();
    start(options);
    RawClient other(server_->address());
    other.write(get("/hello"));
    EXPECT_THAT(other.read_response(), StartsWith("HTTP/1.1 200 OK\r\n"));
    for (int i = 0; i < 3; ++i) {
        RawClient client(server_->address());
        client.write(get("/hello", "X-Throw: 1\r\n"));
        EXPECT_EQ(client.read_all(), "") << "the connection ends";
    }
    other.write(get("/hello"));
    EXPECT_THAT(other.read_response(), StartsWith("HTTP/1.1 200 OK\r\n"));
    RawClient later(server_->address());
    later.write(get("/hello"));
    EXPECT_THAT(later.read_response(), StartsWith("HTTP/1.1 200 OK\r\n"));
    stop(std::chrono::seconds(5));
    EXPECT_EQ(ended_.wait_for(std::chrono::seconds(20)), std::future_status::ready) << "all sessions were joined";
}

TEST_F(HttpServer, F8TransferEncodingOtherThanChunkedIsRefused) {
    start();
    const std::vector<std::string> fields{"identity",
                                          "xchunked",
                                          "gzip",
                                          "chunked, identity",
                                          "\"chunked\"",
                                          "gzip, chunked",
                                          "chunked, chunked",
                                          "chunked;q=1",
                                          "",
                                          "chunked\r\nTransfer-Encoding: chunked",
                                          "chunked\r\nTransfer-Encoding: identity",
                                          "gzip\r\nTransfer-Encoding: chunked"};
    const std::string hidden = get("/hello");
    for (const auto& field : fields) {
        RawClient client(server_->address());
        client.write("POST /echo HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: " + field + "\r\n\r\n" + hidden);
        const auto answers = client.read_all();
        EXPECT_THAT(answers, StartsWith("HTTP/1.1 400 ")) << field;
        EXPECT_THAT(answers, Not(HasSubstr("200 OK"))) << "one answer, then the end: " << field;
    }
    for (const char* field : {"chunked", "identity"}) {
        RawClient client(server_->address());
        client.write("POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: " + std::string(field) +
                     "\r\n\r\n0\r\n\r\n" + hidden);
        const auto answers = client.read_all();
        EXPECT_THAT(answers, StartsWith("HTTP/1.")) << field;
        EXPECT_THAT(answers, HasSubstr(" 400 ")) << field;
        EXPECT_THAT(answers, Not(HasSubstr("200 OK"))) << field;
    }
    EXPECT_EQ(log_->take(), std::vector<std::string>(fields.size() + 2, "OTHER unmatched 400"));
    RawClient client(server_->address());
    client.write("POST /echo HTTP/1.1\r\nHost: test\r\ntransfer-encoding:  Chunked \r\n\r\n2\r\n{}\r\n0\r\n\r\n");
    EXPECT_THAT(client.read_response(), ::testing::EndsWith("\r\n\r\n{}"));
}

}  // namespace
}  // namespace distilld::http

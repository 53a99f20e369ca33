#include "server/cli/jobs/rest_client.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>

#include "server/cli/jobs/api_key.hpp"
#include "server/cli/jobs/sse_parser.hpp"
#include "server/http/authenticator.hpp"
#include "server/http/http_server.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld::cli {
namespace {

namespace asio = boost::asio;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Sse, ReadsEventsHoweverTheyAreCut) {
    const std::string text =
        ": comment\n\nid: 1\nevent: state\ndata: {\"a\":1}\n\ndata:two\r\ndata: lines\r\n\r\n"
        "event: empty\n\nid: 7\nevent: done\ndata\n\ndata: unfinished\n";
    for (std::size_t cut = 1; cut < 9; ++cut) {
        std::vector<std::string> seen;
        SseParser parser(
            [&seen](const SseEvent& event) { seen.push_back(event.type + "|" + event.data + "|" + event.id); });
        for (std::size_t i = 0; i < text.size(); i += cut) {
            parser.feed(std::string_view(text).substr(i, cut));
        }
        EXPECT_THAT(seen, ElementsAre("state|{\"a\":1}|1", "message|two\nlines|1", "done||7"));
    }
}

TEST(Sse, RefusesAnEventWithoutEnd) {
    SseParser parser([](const SseEvent&) {});
    const std::string piece(1U << 20, 'x');
    EXPECT_THROW(for (int i = 0; i < 20; ++i) parser.feed(piece), std::length_error);
}

TEST(RestClientMake, TakesHostAndPortOnly) {
    EXPECT_TRUE(make_rest_client("http://127.0.0.1:8500").has_value());
    EXPECT_TRUE(make_rest_client("http://localhost/").has_value());
    EXPECT_TRUE(make_rest_client("https://localhost").has_value());
    EXPECT_THAT(make_rest_client("https://h", {.ca = "/nonexistent/ca.pem"}).error().message,
                HasSubstr("/nonexistent/ca.pem"));
    for (const char* bad : {"", "127.0.0.1:8500", "ftp://h", "http://", "http://h/path", "http://u@h", "http://h?x"}) {
        const auto made = make_rest_client(bad);
        ASSERT_FALSE(made.has_value()) << bad;
        EXPECT_EQ(made.error().kind, ErrorKind::invalid_input);
    }
}

TEST(ApiKeyOfTheClient, ComesFromAFileOrTheEnvironment) {
    const test::TemporaryFolder folder;
    const auto file = (folder.path() / "key").string();
    const auto write = [&file](const std::string& text) { std::ofstream(file, std::ios::trunc) << text; };
    ::unsetenv(kApiKeyVariable);
    EXPECT_EQ(read_api_key("").value(), "");
    ::setenv(kApiKeyVariable, "dk_environment", 1);
    EXPECT_EQ(read_api_key("").value(), "dk_environment");
    write("dk_file\r\n");
    EXPECT_EQ(read_api_key(file).value(), "dk_file");
    for (const char* bad : {"", "\n", "dk_a\ndk_b", "dk a", "dk_a\r\nX-Evil: 1"}) {
        write(bad);
        const auto read = read_api_key(file);
        ASSERT_FALSE(read.has_value()) << bad;
        EXPECT_THAT(read.error().message, HasSubstr(file));
        EXPECT_THAT(read.error().message, ::testing::Not(HasSubstr("dk_a")));
    }
    ::setenv(kApiKeyVariable, "two\nlines", 1);
    EXPECT_FALSE(read_api_key("").has_value());
    ::unsetenv(kApiKeyVariable);
    EXPECT_THAT(read_api_key("/nonexistent/key").error().message, HasSubstr("/nonexistent/key"));
}

TEST(RestClientText, PathSegments) {
    EXPECT_EQ(path_segment("job-1.x_y~z"), "job-1.x_y~z");
    EXPECT_EQ(path_segment("a/b c?d"), "a%2Fb%20c%3Fd");
    EXPECT_EQ(path_segment(".."), "%2E%2E");
}

TEST(RestClientText, Problems) {
    EXPECT_EQ(describe_problem({502, "text/html", "<html>"}), "502 Bad Gateway");
    EXPECT_EQ(describe_problem({400, "application/problem+json",
                                R"({"detail":"2 violations","errors":[{"pointer":"/a","detail":"x"},
                                    {"pointer":"","detail":"y"}]})"}),
              "400 Bad Request: 2 violations\n/a: x\n: y");
    EXPECT_EQ(describe_problem({400, "application/problem+json",
                                R"({"detail":"/a: x\n/b: y","errors":[{"pointer":"/a","detail":"x"}]})"}),
              "400 Bad Request: /a: x\n/b: y");
}

/// Two pieces, then the end.
class Pieces final : public http::BodyStream {
  public:
    asio::awaitable<std::optional<std::string>> next() override {
        if (++count_ > 2) {
            co_return std::nullopt;
        }
        co_return "piece" + std::to_string(count_);
    }

  private:
    int count_ = 0;
};

/// Waits for ever.
class Silence final : public http::BodyStream {
  public:
    asio::awaitable<std::optional<std::string>> next() override {
        asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::hours(1));
        co_await timer.async_wait(asio::use_awaitable);
        co_return std::nullopt;
    }
};

asio::awaitable<http::Response> echo(http::Request request) {
    http::Response response;
    response.status = 201;
    response.body = request.method + " " + request.path + " " + request.body;
    co_return response;
}
asio::awaitable<http::Response> who(http::Request request) {
    http::Response response;
    response.body = request.caller ? request.caller->name : "nobody";
    co_return response;
}
asio::awaitable<http::Response> pieces(http::Request) {
    http::Response response;
    response.stream = std::make_unique<Pieces>();
    co_return response;
}
asio::awaitable<http::Response> silence(http::Request) {
    http::Response response;
    response.stream = std::make_unique<Silence>();
    co_return response;
}

/// Calls everybody by the key.
class TestAuthenticator final : public http::Authenticator {
  public:
    http::Authentication judge(const http::RequestHead& head) override {
        http::Authentication verdict;
        if (const auto key = head.request.header("authorization")) {
            verdict.caller = http::Caller{std::string(*key), http::Role::read, "key-1"};
        }
        return verdict;
    }
    std::optional<http::Response> revocation(const http::Caller& /*caller*/) override { return std::nullopt; }
};

class RestClientTest : public ::testing::Test {
  protected:
    RestClientTest() {
        http::ServerOptions options;
        options.listen = "127.0.0.1:0";
        std::vector<http::Route> routes{
            {"POST", "/echo", echo}, {"GET", "/pieces", pieces}, {"GET", "/silence", silence}, {"GET", "/who", who}};
        options.authenticator = std::make_shared<TestAuthenticator>();
        server_ = http::make_server(context_.get_executor(), options, std::move(routes)).value();
        asio::co_spawn(context_, server_->run(), asio::detached);
        thread_ = std::thread([this] { context_.run(); });
        client_ = make_rest_client("http://" + server_->address()).value();
    }
    ~RestClientTest() override {
        asio::post(context_, [this] { server_->stop(std::chrono::seconds(0)); });
        thread_.join();
    }
    asio::io_context context_;
    std::unique_ptr<http::Server> server_;
    std::thread thread_;
    std::unique_ptr<RestClient> client_;
};

TEST_F(RestClientTest, ShowsItsKeyWithEachRequest) {
    EXPECT_EQ(client_->request("GET", "/who").value().body, "nobody");
    const auto keyed = make_rest_client("http://" + server_->address(), {"dk_mine"}).value();
    EXPECT_EQ(keyed->request("GET", "/who").value().body, "Bearer dk_mine");
}

TEST_F(RestClientTest, SendsAndReceives) {
    const std::string body(100000, 'b');
    const auto response = client_->request("POST", "/echo", body);
    ASSERT_TRUE(response.has_value()) << response.error().message;
    EXPECT_EQ(response->status, 201U);
    EXPECT_EQ(response->body, "POST /echo " + body);
    EXPECT_THAT(describe_problem(client_->request("GET", "/none").value()), HasSubstr("404 Not Found: "));
}

TEST_F(RestClientTest, StreamsUntilTheEndOrEnough) {
    std::string all;
    const RestClient::OnPiece take = [&all](std::string_view bytes) {
        all += bytes;
        return true;
    };
    ASSERT_TRUE(client_->stream("/pieces", {}, take, std::chrono::seconds(20)).has_value());
    EXPECT_EQ(all, "piece1piece2");
    int count = 0;
    const RestClient::OnPiece one = [&count](std::string_view) { return ++count < 1; };
    ASSERT_TRUE(client_->stream("/pieces", {}, one, std::chrono::seconds(20)).has_value());
    EXPECT_EQ(count, 1);
    EXPECT_EQ(client_->stream("/none", {}, take, std::chrono::seconds(20)).value().status, 404U);
}

TEST_F(RestClientTest, GivesUpOnSilence) {
    const RestClient::OnPiece take = [](std::string_view) { return true; };
    const auto response = client_->stream("/silence", {}, take, std::chrono::seconds(1));
    ASSERT_FALSE(response.has_value());
    EXPECT_THAT(response.error().message, HasSubstr("no answer in time"));
}

/// What the client makes of an answer as it stands.
Result<RestResponse> answer_to(const std::string& answer) {
    asio::io_context context;
    using asio::ip::tcp;
    tcp::acceptor acceptor(context, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
    std::thread server([&acceptor, &answer] {
        tcp::socket peer = acceptor.accept();
        std::string request;
        asio::read_until(peer, asio::dynamic_buffer(request), "\r\n\r\n");
        boost::system::error_code ignored;
        asio::write(peer, asio::buffer(answer), ignored);
        while (!ignored) {  // until the client has closed
            peer.read_some(asio::buffer(request), ignored);
        }
    });
    const auto port = std::to_string(acceptor.local_endpoint().port());
    auto response = make_rest_client("http://127.0.0.1:" + port).value()->request("GET", "/");
    server.join();
    return response;
}

TEST(RestClientFailure, F1AnAnswerWithALargeTrailerIsAnError) {
    const auto response = answer_to(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + std::string(70'000, 'a') + "\r\n\r\n");
    ASSERT_FALSE(response.has_value());
    EXPECT_THAT(response.error().message, HasSubstr("header limit"));
}

TEST(RestClientFailure, F8AnUnknownTransferCodingIsAnError) {
    const auto response = answer_to("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n");
    ASSERT_FALSE(response.has_value());
    EXPECT_THAT(response.error().message, HasSubstr("Transfer-Encoding"));
}

TEST(RestClient, F10ReadsOverInterimAnswers) {
    const auto response = answer_to("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood");
    ASSERT_TRUE(response.has_value()) << response.error().message;
    EXPECT_EQ(response->status, 200U);
    EXPECT_EQ(response->body, "good");
}

TEST(RestClientFailure, NamesAServerThatIsNotThere) {
    asio::io_context context;
    std::string address;
    {
        const auto server = http::make_server(context.get_executor(), {}, {}).value();
        address = server->address();
    }
    const auto response = make_rest_client("http://" + address).value()->request("GET", "/");
    ASSERT_FALSE(response.has_value());
    EXPECT_THAT(response.error().message, HasSubstr(address));
}

}  // namespace
}  // namespace distilld::cli

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <cstring>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "server/http/http_server.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// A socket that speaks bytes. Each wait is bounded, so that a server which stays silent fails the test.
class RawClient {
  public:
    explicit RawClient(const std::string& address) {
        const auto colon = address.rfind(':');
        sockaddr_in peer{};
        peer.sin_family = AF_INET;
        peer.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
        inet_pton(AF_INET, address.substr(0, colon).c_str(), &peer.sin_addr);
        fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
        if (::connect(fd_, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) != 0) {
            throw std::runtime_error("connect");
        }
    }
    ~RawClient() { close(); }
    RawClient(const RawClient&) = delete;
    RawClient& operator=(const RawClient&) = delete;

    void close() {
        if (fd_ >= 0) {
            ::close(fd_);
        }
        fd_ = -1;
    }
    void write(std::string_view text) {
        while (!text.empty()) {
            const ssize_t sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
            if (sent <= 0) {
                return;
            }
            text.remove_prefix(static_cast<std::size_t>(sent));
        }
    }
    /// False at the end of the stream.
    bool read_more() {
        pollfd wait{fd_, POLLIN, 0};
        if (::poll(&wait, 1, 20000) <= 0) {
            throw std::runtime_error("the server said nothing for 20 s; got: " + data_);
        }
        char piece[65536];
        const ssize_t got = ::recv(fd_, piece, sizeof(piece), 0);
        if (got <= 0) {
            return false;
        }
        data_.append(piece, static_cast<std::size_t>(got));
        return true;
    }
    std::string read_until(std::string_view mark) {
        std::size_t at = 0;
        while ((at = data_.find(mark)) == std::string::npos) {
            if (!read_more()) {
                throw std::runtime_error("closed before '" + std::string(mark) + "'; got: " + data_);
            }
        }
        std::string text = data_.substr(0, at + mark.size());
        data_.erase(0, at + mark.size());
        return text;
    }
    /// One response with a Content-Length (none: no body).
    std::string read_response(bool head = false) {
        std::string text = read_until("\r\n\r\n");
        const auto at = text.find("Content-Length: ");
        if (at == std::string::npos || head) {
            return text;
        }
        const std::size_t size = std::stoul(text.substr(at + 16));
        while (data_.size() < size) {
            if (!read_more()) {
                throw std::runtime_error("closed within a body");
            }
        }
        text += data_.substr(0, size);
        data_.erase(0, size);
        return text;
    }
    std::string read_all() {
        while (read_more()) {
        }
        return std::exchange(data_, {});
    }

  private:
    int fd_ = -1;
    std::string data_;
};

std::string get(std::string_view path, std::string_view more = "") {
    return "GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(more) + "\r\n";
}

std::string post(std::string_view path, std::string_view body, std::string_view more = "") {
    return "POST " + std::string(path) + " HTTP/1.1\r\nHost: test\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n" + std::string(more) + "\r\n" + std::string(body);
}

struct Log {
    std::mutex mutex;
    std::vector<std::string> lines;
    void add(std::string line) {
        const std::lock_guard lock(mutex);
        lines.push_back(std::move(line));
    }
    std::vector<std::string> take() {
        const std::lock_guard lock(mutex);
        return lines;
    }
};

asio::awaitable<void> sleep_for(std::chrono::milliseconds time) {
    asio::steady_timer timer(co_await asio::this_coro::executor, time);
    co_await timer.async_wait(asio::use_awaitable);
}

/// Says "tick" a few times, then ends or waits for ever. Notes its own destruction.
class Ticks final : public api::BodyStream {
  public:
    Ticks(int count, bool wait_at_end, std::shared_ptr<Log> log)
        : left_(count), wait_at_end_(wait_at_end), log_(std::move(log)) {}
    ~Ticks() override { log_->add("stream destroyed"); }
    asio::awaitable<std::optional<std::string>> next() override {
        if (left_-- > 0) {
            co_return "tick";
        }
        if (wait_at_end_) {
            try {
                co_await sleep_for(std::chrono::hours(1));
            } catch (const boost::system::system_error&) {
                log_->add("pull cancelled");
                throw;
            }
        }
        co_return std::nullopt;
    }

  private:
    int left_;
    bool wait_at_end_;
    std::shared_ptr<Log> log_;
};

class HttpServer : public ::testing::Test {
  protected:
    void start(ServerOptions options = {}) {
        options.listen = "127.0.0.1:0";
        auto made = make_server(context_.get_executor(), options, routes(),
                                [log = log_](const std::string& method, const std::string& pattern, unsigned status,
                                             std::chrono::nanoseconds) {
                                    log->add(method + " " + pattern + " " + std::to_string(status));
                                });
        ASSERT_TRUE(made.has_value()) << made.error().message;
        server_ = std::move(*made);
        ended_ =
            asio::co_spawn(context_, server_->run(), asio::bind_cancellation_slot(cancel_.slot(), asio::use_future));
        thread_ = std::thread([this] { context_.run(); });
    }
    void TearDown() override {
        stop(std::chrono::seconds(0));
        if (thread_.joinable()) {
            EXPECT_EQ(ended_.wait_for(std::chrono::seconds(20)), std::future_status::ready);
            thread_.join();
        }
    }
    void stop(std::chrono::seconds grace) {
        if (server_) {
            asio::post(context_, [this, grace] { server_->stop(grace); });
        }
    }

    std::vector<Route> routes() {
        const auto log = log_;
        std::vector<Route> table;
        table.push_back({"GET", "/hello", [](api::Request) -> asio::awaitable<api::Response> {
                             api::Response response;
                             response.content_type = "text/plain";
                             response.body = "hello";
                             response.headers.emplace_back("X-Extra", "1");
                             co_return response;
                         }});
        table.push_back({"POST", "/echo", [](api::Request request) -> asio::awaitable<api::Response> {
                             api::Response response;
                             response.body = std::move(request.body);
                             co_return response;
                         }});
        table.push_back({"GET", "/items/{id}", [](api::Request request) -> asio::awaitable<api::Response> {
                             api::Response response;
                             response.body = request.path + "|" + request.path_parameters.at(0).second;
                             for (const auto& [name, value] : request.query) {
                                 response.body += "|" + name + "=" + value;
                             }
                             for (const auto& [name, value] : request.headers) {
                                 if (name == "x-request-id") {
                                     response.body += "|" + value;
                                 }
                             }
                             co_return response;
                         }});
        table.push_back({"GET", "/large", [](api::Request) -> asio::awaitable<api::Response> {
                             api::Response response;
                             response.body.assign(8U << 20, 'x');
                             co_return response;
                         }});
        table.push_back({"GET", "/throw", [](api::Request) -> asio::awaitable<api::Response> {
                             throw std::runtime_error("the secret inside");
                             co_return api::Response{};
                         }});
        table.push_back({"GET", "/throw-early", [](api::Request) -> asio::awaitable<api::Response> {
                             throw std::runtime_error("the secret inside");
                         }});
        table.push_back({"DELETE", "/empty", [](api::Request) -> asio::awaitable<api::Response> {
                             api::Response response;
                             response.status = 204;
                             co_return response;
                         }});
        table.push_back({"GET", "/slow", [log](api::Request) -> asio::awaitable<api::Response> {
                             log->add("slow begins");
                             co_await sleep_for(std::chrono::milliseconds(300));
                             log->add("slow ends");
                             api::Response response;
                             response.body = "slow";
                             co_return response;
                         }});
        table.push_back({"GET", "/never", [log](api::Request) -> asio::awaitable<api::Response> {
                             log->add("never begins");
                             try {
                                 co_await sleep_for(std::chrono::hours(1));
                             } catch (const boost::system::system_error&) {
                                 log->add("handler cancelled");
                                 throw;
                             }
                             co_return api::Response{};
                         }});
        table.push_back({"GET", "/for-client/{ms}",
                         [log](api::Request request) -> asio::awaitable<api::Response> {
                             log->add("for client begins");
                             try {
                                 const int ms = std::stoi(request.path_parameters.at(0).second);
                                 co_await sleep_for(std::chrono::milliseconds(ms));
                             } catch (const boost::system::system_error&) {
                                 log->add("for client cancelled");
                                 throw;
                             }
                             api::Response response;
                             response.body = "for client";
                             co_return response;
                         },
                         true});
        table.push_back({"GET", "/ticks", [log](api::Request) -> asio::awaitable<api::Response> {
                             api::Response response;
                             response.content_type = "text/event-stream";
                             response.stream = std::make_unique<Ticks>(3, false, log);
                             co_return response;
                         }});
        table.push_back({"GET", "/endless", [log](api::Request) -> asio::awaitable<api::Response> {
                             api::Response response;
                             response.stream = std::make_unique<Ticks>(2, true, log);
                             co_return response;
                         }});
        return table;
    }
    /// The server works on after an answer has been read: what it notes then comes a moment later.
    bool noted(const std::string& line) {
        for (int i = 0; i < 2000; ++i) {
            const auto lines = log_->take();
            if (std::find(lines.begin(), lines.end(), line) != lines.end()) {
                return true;
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        return false;
    }

    asio::io_context context_;
    std::shared_ptr<Log> log_ = std::make_shared<Log>();
    std::unique_ptr<Server> server_;
    asio::cancellation_signal cancel_;
    std::future<void> ended_;
    std::thread thread_;
};

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

TEST_F(HttpServer, CancelsAHandlerThatIsOnlyForTheClientThatLeft) {
    start();
    RawClient client(server_->address());
    client.write(get("/for-client/3600000"));
    EXPECT_TRUE(noted("for client begins"));
    client.close();
    EXPECT_TRUE(noted("for client cancelled"));
    EXPECT_TRUE(noted("GET /for-client/{ms} 499"));
}

TEST_F(HttpServer, LetsOtherHandlersFinishWhenTheClientLeaves) {
    start();
    RawClient client(server_->address());
    client.write(get("/slow"));
    EXPECT_TRUE(noted("slow begins"));
    client.close();
    EXPECT_TRUE(noted("slow ends"));
}

TEST_F(HttpServer, AClientThatSendsOnHasNotLeft) {
    start();
    RawClient client(server_->address());
    client.write(get("/for-client/100"));
    EXPECT_TRUE(noted("for client begins"));
    client.write(get("/hello"));
    EXPECT_THAT(client.read_response(), HasSubstr("for client"));
    EXPECT_THAT(client.read_response(), HasSubstr("hello"));
}

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

TEST_F(HttpServer, CancellingRunStopsTheServer) {
    start();
    RawClient client(server_->address());
    client.write(get("/hello"));
    client.read_response();
    asio::post(context_, [this] { cancel_.emit(asio::cancellation_type::terminal); });
    EXPECT_EQ(ended_.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_EQ(client.read_all(), "");
}

TEST_F(HttpServer, SendsLargeBodiesToASlowReader) {
    start();
    RawClient client(server_->address());
    client.write(get("/large"));
    const auto response = client.read_response();
    EXPECT_EQ(response.size() - response.find("\r\n\r\n") - 4, 8U << 20);
}

TEST_F(HttpServer, SurvivesClientsThatLeaveAtAnyPoint) {
    start();
    const std::string request = post("/echo", std::string(300, 'a')) + get("/large");
    for (std::size_t cut = 0; cut <= request.size(); cut += 7) {
        RawClient client(server_->address());
        client.write(std::string_view(request).substr(0, cut));
    }
    RawClient client(server_->address());
    client.write(get("/hello"));
    EXPECT_THAT(client.read_response(), HasSubstr("hello"));
}

TEST(MakeServer, NamesAnAddressItCannotListenOn) {
    asio::io_context context;
    ServerOptions options;
    auto first = make_server(context.get_executor(), options, {});
    ASSERT_TRUE(first.has_value());
    options.listen = (*first)->address();
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

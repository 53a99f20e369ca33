#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pipeline/async/condition.hpp"
#include "server/http/http_server.hpp"

namespace distilld::test {

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

inline boost::asio::awaitable<void> sleep_for(std::chrono::milliseconds time) {
    boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor, time);
    co_await timer.async_wait(boost::asio::use_awaitable);
}

/// Says "tick" a few times, then ends or waits for ever. Notes its own destruction.
class Ticks final : public http::BodyStream {
  public:
    Ticks(int count, bool wait_at_end, std::shared_ptr<Log> log)
        : left_(count), wait_at_end_(wait_at_end), log_(std::move(log)) {}
    ~Ticks() override { log_->add("stream destroyed"); }
    boost::asio::awaitable<std::optional<std::string>> next() override {
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

/// Answers each message; "end" ends the connection from here, "bad" is one that may not come.
class Echo final : public http::MessagePeer {
  public:
    explicit Echo(const boost::asio::any_io_executor& executor) : changed_(executor) {}
    boost::asio::awaitable<std::optional<WebSocketClose>> take(std::string message) override {
        if (message == "bad") {
            co_return WebSocketClose{4001, "that was bad"};
        }
        said_.push_back(std::move(message));
        changed_.notify();
        co_return std::nullopt;
    }
    boost::asio::awaitable<WebSocketMessage> next() override {
        while (said_.empty()) {
            co_await changed_.wait();
        }
        WebSocketMessage message;
        message.text = "you said " + said_.front();
        if (said_.front() == "end") {
            message.closed = WebSocketClose{4002, "the end"};
        }
        said_.erase(said_.begin());
        co_return message;
    }

  private:
    Condition changed_;
    std::vector<std::string> said_;
};

class HttpServer : public ::testing::Test {
  protected:
    void start(http::ServerOptions options = {}) {
        options.listen = "127.0.0.1:0";
        options.hosts.emplace_back("test");  // as the raw client calls it
        auto made = http::make_server(context_.get_executor(), options, routes(),
                                      [log = log_](const std::string& method, const std::string& pattern,
                                                   unsigned status, std::chrono::nanoseconds) {
                                          log->add(method + " " + pattern + " " + std::to_string(status));
                                      });
        ASSERT_TRUE(made.has_value()) << made.error().message;
        server_ = std::move(*made);
        ended_ = boost::asio::co_spawn(context_, server_->run(),
                                       boost::asio::bind_cancellation_slot(cancel_.slot(), boost::asio::use_future));
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
            boost::asio::post(context_, [this, grace] { server_->stop(grace); });
        }
    }

    std::vector<http::Route> routes() {
        const auto log = log_;
        std::vector<http::Route> table;
        table.push_back({"GET", "/hello", [](http::Request) -> boost::asio::awaitable<http::Response> {
                             http::Response response;
                             response.content_type = "text/plain";
                             response.body = "hello";
                             response.headers.emplace_back("X-Extra", "1");
                             co_return response;
                         }});
        table.push_back({"POST", "/echo", [](http::Request request) -> boost::asio::awaitable<http::Response> {
                             http::Response response;
                             response.body = std::move(request.body);
                             co_return response;
                         }});
        table.push_back(
            {.method = "POST",
             .pattern = "/json",
             .handler = [](http::Request) -> boost::asio::awaitable<http::Response> { co_return http::Response{}; },
             .json_body = true});
        table.push_back({.method = "GET",
                         .pattern = "/probe",
                         .handler = [](http::Request) -> boost::asio::awaitable<http::Response> {
                             http::Response response;
                             response.body = "alive";
                             co_return response;
                         },
                         .any_host = true,
                         .vital = true});
        table.push_back({"GET", "/items/{id}", [](http::Request request) -> boost::asio::awaitable<http::Response> {
                             http::Response response;
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
        table.push_back({.method = "POST",
                         .pattern = "/sizes",
                         .handler = [](http::Request request) -> boost::asio::awaitable<http::Response> {
                             http::Response response;
                             std::size_t bytes = 0;
                             std::size_t largest = 0;
                             auto end = http::BodyEnd::not_yet;
                             while (end == http::BodyEnd::not_yet && !request.query_value("early")) {
                                 const auto piece = co_await request.body_source->next();
                                 bytes += piece.bytes.size();
                                 largest = std::max(largest, piece.bytes.size());
                                 end = piece.end;
                             }
                             response.body = std::to_string(bytes) + " end " + std::to_string(static_cast<int>(end)) +
                                             (largest <= 128U << 10 ? " small" : " large");
                             co_return response;
                         },
                         .streamed_body = true,
                         .body_limit = 1U << 20});
        table.push_back({"GET", "/headers", [](http::Request request) -> boost::asio::awaitable<http::Response> {
                             http::Response response;
                             response.body = "caller=" + (request.caller ? request.caller->name : "");
                             for (const auto& [name, value] : request.headers) {
                                 response.body += "|" + name + "=" + value;
                             }
                             co_return response;
                         }});
        table.push_back({"GET", "/large", [](http::Request) -> boost::asio::awaitable<http::Response> {
                             http::Response response;
                             response.body.assign(8U << 20, 'x');
                             co_return response;
                         }});
        table.push_back({"GET", "/throw", [](http::Request) -> boost::asio::awaitable<http::Response> {
                             throw std::runtime_error("the secret inside");
                             co_return http::Response{};
                         }});
        table.push_back({"GET", "/throw-early", [](http::Request) -> boost::asio::awaitable<http::Response> {
                             throw std::runtime_error("the secret inside");
                         }});
        table.push_back({"DELETE", "/empty", [](http::Request) -> boost::asio::awaitable<http::Response> {
                             http::Response response;
                             response.status = 204;
                             co_return response;
                         }});
        table.push_back({"GET", "/slow", [log](http::Request) -> boost::asio::awaitable<http::Response> {
                             log->add("slow begins");
                             co_await sleep_for(std::chrono::milliseconds(300));
                             log->add("slow ends");
                             http::Response response;
                             response.body = "slow";
                             co_return response;
                         }});
        table.push_back({"GET", "/never", [log](http::Request) -> boost::asio::awaitable<http::Response> {
                             log->add("never begins");
                             try {
                                 co_await sleep_for(std::chrono::hours(1));
                             } catch (const boost::system::system_error&) {
                                 log->add("handler cancelled");
                                 throw;
                             }
                             co_return http::Response{};
                         }});
        table.push_back({"GET", "/for-client/{ms}",
                         [log](http::Request request) -> boost::asio::awaitable<http::Response> {
                             log->add("for client begins");
                             try {
                                 const int ms = std::stoi(request.path_parameters.at(0).second);
                                 co_await sleep_for(std::chrono::milliseconds(ms));
                             } catch (const boost::system::system_error&) {
                                 log->add("for client cancelled");
                                 throw;
                             }
                             http::Response response;
                             response.body = "for client";
                             co_return response;
                         },
                         true});
        http::Route echo{"GET", "/echo", [](http::Request) -> boost::asio::awaitable<http::Response> {
                             http::Response response;
                             response.messages = std::make_shared<Echo>(co_await boost::asio::this_coro::executor);
                             co_return response;
                         }};
        echo.message_limit = 100;
        table.push_back(std::move(echo));
        table.push_back({"GET", "/ticks", [log](http::Request) -> boost::asio::awaitable<http::Response> {
                             http::Response response;
                             response.content_type = "text/event-stream";
                             response.stream = std::make_unique<Ticks>(3, false, log);
                             co_return response;
                         }});
        table.push_back({"GET", "/measured", [log](http::Request) -> boost::asio::awaitable<http::Response> {
                             http::Response response;
                             response.stream = std::make_unique<Ticks>(3, false, log);
                             response.content_length = 12;
                             co_return response;
                         }});
        table.push_back({"GET", "/endless", [log](http::Request) -> boost::asio::awaitable<http::Response> {
                             http::Response response;
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

    boost::asio::io_context context_;
    std::shared_ptr<Log> log_ = std::make_shared<Log>();
    std::unique_ptr<http::Server> server_;
    boost::asio::cancellation_signal cancel_;
    std::future<void> ended_;
    std::thread thread_;
};

}  // namespace distilld::test

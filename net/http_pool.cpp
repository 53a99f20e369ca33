#include "net/http_pool.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "pipeline/async/abort.hpp"
#include "pipeline/async/failure_message.hpp"

namespace distilld {
namespace asio = boost::asio;

HttpPool::HttpPool(asio::any_io_executor executor, HostResolver& resolver, EndpointUrl url,
                   std::shared_ptr<asio::ssl::context> tls, std::shared_ptr<BufferPool> buffers,
                   std::shared_ptr<TrafficCounters> traffic, HttpPoolOptions options)
    : connector_(std::move(executor), resolver, std::move(url), std::move(tls), traffic, options.connect_limit),
      buffers_(std::move(buffers)),
      traffic_(std::move(traffic)),
      options_(std::move(options)) {}

FetchError HttpPool::failure(FailureKind kind, const std::string& what) const {
    return FetchError{kind, connector_.url().name + ": " + what, std::nullopt};
}

std::unique_ptr<HttpConnection> HttpPool::take_idle() {
    retire_old();
    while (!idle_.empty()) {
        auto connection = std::move(idle_.back());
        idle_.pop_back();
        if (connection->is_quiet()) {
            return connection;
        }
        ++traffic_->stale_connections;
    }
    return nullptr;
}

void HttpPool::retire_old() {
    const auto oldest = std::chrono::steady_clock::now() - options_.idle_limit;
    // In order of last use.
    const auto fresh = std::find_if(idle_.begin(), idle_.end(),
                                    [&](const auto& connection) { return connection->idle_since > oldest; });
    idle_.erase(idle_.begin(), fresh);
}

void HttpPool::keep(std::unique_ptr<HttpConnection> connection) {
    retire_old();
    if (closed_ || idle_.size() >= options_.max_idle) {
        return;
    }
    connection->idle_since = std::chrono::steady_clock::now();
    idle_.push_back(std::move(connection));
}

/// An exception ends its connection and fails only this request.
asio::awaitable<FetchResult<HttpResponse>> HttpPool::request(HttpRequest request) {
    std::exception_ptr thrown;
    try {
        co_return co_await ask(std::move(request));
    } catch (...) {
        thrown = std::current_exception();
    }
    if (is_abort(thrown)) {
        std::rethrow_exception(thrown);
    }
    co_return failure(FailureKind::bad_response, "cannot receive the answer: " + failure_message(thrown));
}

asio::awaitable<FetchResult<HttpResponse>> HttpPool::ask(HttpRequest request) {
    ++traffic_->requests;
    const std::string head = request_head(request, connector_.url(), options_);
    auto connection = take_idle();
    if (connection) {
        auto kept = co_await connection->exchange(request, head, *buffers_, *traffic_);
        const bool stale = kept.failure && !kept.any_byte;
        if (!stale) {
            co_return finish(std::move(connection), std::move(kept), request);
        }
        ++traffic_->stale_connections;
    }
    auto opened = co_await connector_.connect();
    if (!opened) {
        co_return opened.error();
    }
    connection = std::move(*opened);
    auto fresh = co_await connection->exchange(request, head, *buffers_, *traffic_);
    co_return finish(std::move(connection), std::move(fresh), request);
}

FetchResult<HttpResponse> HttpPool::finish(std::unique_ptr<HttpConnection> connection, HttpExchange exchange,
                                           const HttpRequest& request) {
    if (exchange.too_large) {
        return failure(FailureKind::bad_response,
                       "the answer is larger than the limit of " + std::to_string(request.response_limit) + " bytes");
    }
    if (exchange.malformed) {
        return failure(FailureKind::bad_response, "the answer is not HTTP: " + exchange.failure.message());
    }
    if (exchange.failure) {
        const char* where =
            exchange.any_byte ? "connection lost in the middle of the answer: " : "connection lost before an answer: ";
        return failure(FailureKind::connection, where + exchange.failure.message());
    }
    if (exchange.reusable) {
        keep(std::move(connection));
    }
    return std::move(exchange.response);
}

void HttpPool::close() {
    closed_ = true;
    idle_.clear();
}

}  // namespace distilld

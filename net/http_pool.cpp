#include "net/http_pool.hpp"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "net/http_connector.hpp"
#include "pipeline/async/abort.hpp"
#include "pipeline/async/failure_message.hpp"

namespace distilld {
namespace asio = boost::asio;

struct HttpPool::Implementation {
    Implementation(asio::any_io_executor executor, HostResolver& resolver, EndpointUrl url,
                   std::shared_ptr<asio::ssl::context> tls, std::shared_ptr<BufferPool> the_buffers,
                   std::shared_ptr<TrafficCounters> the_traffic, HttpPoolOptions the_options)
        : connector(std::move(executor), resolver, std::move(url), std::move(tls), the_traffic,
                    the_options.connect_limit),
          buffers(std::move(the_buffers)),
          traffic(std::move(the_traffic)),
          options(std::move(the_options)) {}

    [[nodiscard]] FetchError failure(FailureKind kind, const std::string& what) const {
        return FetchError{kind, connector.url().name + ": " + what, std::nullopt};
    }

    /// The most recently used connection that is young enough and quiet: stray bytes would be taken for the next
    /// answer.
    std::unique_ptr<HttpConnection> take_idle() {
        retire_old();
        while (!idle.empty()) {
            auto connection = std::move(idle.back());
            idle.pop_back();
            if (connection->is_quiet()) {
                return connection;
            }
            ++traffic->stale_connections;
        }
        return nullptr;
    }

    void retire_old() {
        const auto oldest = std::chrono::steady_clock::now() - options.idle_limit;
        // In order of last use.
        const auto fresh = std::find_if(idle.begin(), idle.end(),
                                        [&](const auto& connection) { return connection->idle_since > oldest; });
        idle.erase(idle.begin(), fresh);
    }

    void keep(std::unique_ptr<HttpConnection> connection) {
        retire_old();
        if (closed || idle.size() >= options.max_idle) {
            return;
        }
        connection->idle_since = std::chrono::steady_clock::now();
        idle.push_back(std::move(connection));
    }

    /// An exception ends its connection and fails only this request.
    asio::awaitable<FetchResult<HttpResponse>> request(HttpRequest request) {
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

    asio::awaitable<FetchResult<HttpResponse>> ask(HttpRequest request) {
        ++traffic->requests;
        const std::string head = request_head(request, connector.url(), options);
        auto connection = take_idle();
        if (connection) {
            auto kept = co_await connection->exchange(request, head, *buffers, *traffic);
            const bool stale = kept.failure && !kept.any_byte;
            if (!stale) {
                co_return finish(std::move(connection), std::move(kept), request);
            }
            ++traffic->stale_connections;
        }
        auto opened = co_await connector.connect();
        if (!opened) {
            co_return opened.error();
        }
        connection = std::move(*opened);
        auto fresh = co_await connection->exchange(request, head, *buffers, *traffic);
        co_return finish(std::move(connection), std::move(fresh), request);
    }

    FetchResult<HttpResponse> finish(std::unique_ptr<HttpConnection> connection, HttpExchange exchange,
                                     const HttpRequest& request) {
        if (exchange.too_large) {
            return failure(FailureKind::bad_response, "the answer is larger than the limit of " +
                                                          std::to_string(request.response_limit) + " bytes");
        }
        if (exchange.malformed) {
            return failure(FailureKind::bad_response, "the answer is not HTTP: " + exchange.failure.message());
        }
        if (exchange.failure) {
            const char* where = exchange.any_byte ? "connection lost in the middle of the answer: "
                                                  : "connection lost before an answer: ";
            return failure(FailureKind::connection, where + exchange.failure.message());
        }
        if (exchange.reusable) {
            keep(std::move(connection));
        }
        return std::move(exchange.response);
    }

    HttpConnector connector;
    std::shared_ptr<BufferPool> buffers;
    std::shared_ptr<TrafficCounters> traffic;
    HttpPoolOptions options;
    std::vector<std::unique_ptr<HttpConnection>> idle;
    bool closed = false;
};

HttpPool::HttpPool(asio::any_io_executor executor, HostResolver& resolver, EndpointUrl url,
                   std::shared_ptr<asio::ssl::context> tls, std::shared_ptr<BufferPool> buffers,
                   std::shared_ptr<TrafficCounters> traffic, HttpPoolOptions options)
    : implementation_(std::make_unique<Implementation>(std::move(executor), resolver, std::move(url), std::move(tls),
                                                       std::move(buffers), std::move(traffic), std::move(options))) {}

HttpPool::~HttpPool() = default;

asio::awaitable<FetchResult<HttpResponse>> HttpPool::request(HttpRequest request) {
    return implementation_->request(std::move(request));
}

void HttpPool::close() {
    implementation_->closed = true;
    implementation_->idle.clear();
}

const EndpointUrl& HttpPool::url() const noexcept {
    return implementation_->connector.url();
}

std::size_t HttpPool::idle_count() const noexcept {
    return implementation_->idle.size();
}

}  // namespace distilld

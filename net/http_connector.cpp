#include "net/http_connector.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "pipeline/async/deadline.hpp"
#include "pipeline/async/tuple.hpp"

namespace distilld {
namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;

namespace {

asio::awaitable<error_code> connect_to(tcp::socket& socket, tcp::endpoint address) {
    error_code failed;
    socket.close(failed);
    socket.open(address.protocol(), failed);
    if (failed) {
        co_return failed;
    }
    const auto connected = co_await socket.async_connect(address, kTuple);
    co_return std::get<0>(connected);
}

}  // namespace

HttpConnector::HttpConnector(asio::any_io_executor executor, HostResolver& resolver, EndpointUrl url,
                             std::shared_ptr<asio::ssl::context> tls, std::shared_ptr<TrafficCounters> traffic,
                             std::chrono::milliseconds connect_limit)
    : executor_(std::move(executor)),
      resolver_(resolver),
      url_(std::move(url)),
      tls_(std::move(tls)),
      traffic_(std::move(traffic)),
      connect_limit_(connect_limit) {}

FetchError HttpConnector::failure(FailureKind kind, const std::string& what) const {
    return FetchError{kind, url_.name + ": " + what, std::nullopt};
}

asio::awaitable<FetchResult<HttpConnector::Addresses>> HttpConnector::resolve() {
    if (!addresses_.empty()) {
        co_return addresses_;
    }
    const HostRule& rule = resolver_.rule();
    if (const auto why = rule.refusal(url_.host, url_.port)) {
        co_return failure(FailureKind::rejected, *why);
    }
    error_code not_an_address;
    const auto address = asio::ip::make_address(url_.host, not_an_address);
    if (!not_an_address) {
        addresses_.emplace_back(address, url_.port);
        co_return addresses_;
    }
    const auto resolved = co_await resolver_.resolve(url_.host);
    if (!resolved) {
        // A name may be missing for a moment: a service without a ready pod has no address.
        co_return failure(FailureKind::connection,
                          "the name of host '" + url_.host + "' cannot be resolved: " + resolved.error().message);
    }
    addresses_.clear();
    std::optional<std::string> refused;
    for (const asio::ip::address& entry : *resolved) {
        // A name may lead anywhere, and elsewhere the next time, so each address is checked before use.
        if (auto why = rule.refusal(url_.host, url_.port, entry.to_string())) {
            refused = std::move(why);
        } else {
            addresses_.emplace_back(entry, url_.port);
        }
    }
    if (addresses_.empty() && refused) {
        resolver_.forget(url_.host);
        co_return failure(FailureKind::rejected, *refused);
    }
    co_return addresses_;
}

asio::awaitable<FetchResult<std::unique_ptr<HttpConnection>>> HttpConnector::connect() {
    auto stream = co_await open();
    if (!stream) {
        co_return stream.error();
    }
    co_return std::make_unique<HttpConnection>(std::move(**stream));
}

asio::awaitable<FetchResult<std::unique_ptr<ByteStream>>> HttpConnector::open() {
    const auto targets = co_await resolve();
    if (!targets) {
        co_return targets.error();
    }
    tcp::socket socket(executor_);
    error_code failed = asio::error::host_not_found;
    for (std::size_t i = 0; i < targets->size(); ++i) {
        auto attempt = connect_to(socket, (*targets)[i]);
        if (i + 1 < targets->size()) {
            const auto outcome = co_await with_deadline(std::move(attempt), connect_limit_);
            failed = outcome.value_or(asio::error::make_error_code(asio::error::timed_out));
        } else {
            failed = co_await std::move(attempt);
        }
        throw_if_aborted(failed);
        if (!failed) {
            break;
        }
    }
    if (failed) {
        addresses_.clear();
        resolver_.forget(url_.host);
        co_return failure(FailureKind::connection, "cannot connect: " + failed.message());
    }
    ++traffic_->connections_opened;
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    socket.set_option(asio::socket_base::keep_alive(true), ignored);
    auto stream = std::make_unique<ByteStream>(std::move(socket), url_.tls ? tls_.get() : nullptr);
    if (stream->is_secure()) {
        const auto shaken = co_await stream->handshake_with(url_.host);
        if (shaken.failure) {
            throw_if_aborted(shaken.failure);
            // An error from OpenSSL is a refusal; one from the socket is a lost connection.
            const bool refusal = shaken.failure.category() == asio::error::get_ssl_category();
            co_return failure(refusal ? FailureKind::rejected : FailureKind::connection,
                              "TLS handshake failed: " + shaken.why);
        }
    }
    co_return stream;
}

}  // namespace distilld

#include "pipeline/teacher/transport/http_pool.hpp"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <charconv>
#include <ctime>
#include <variant>
#include <vector>

#include "pipeline/async/deadline.hpp"
#include "pipeline/teacher/transport/http_failure.hpp"

namespace distilld {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto kAwaitTuple = asio::as_tuple(asio::use_awaitable);

using PlainStream = tcp::socket;
using TlsStream = asio::ssl::stream<tcp::socket>;

struct Connection {
    explicit Connection(PlainStream socket) : stream(std::move(socket)) {}
    explicit Connection(TlsStream tls) : stream(std::move(tls)) {}

    std::variant<PlainStream, TlsStream> stream;
    beast::flat_buffer buffer{std::size_t{128} << 10U};
    std::chrono::steady_clock::time_point idle_since;
};

/// How one request on one connection went.
struct Exchange {
    error_code failure;
    bool any_byte = false;  ///< of the response
    bool too_large = false;
    bool malformed = false;
    bool reusable = false;
    HttpResponse response;
};

void throw_if_aborted(error_code failure) {
    if (failure == asio::error::operation_aborted) {
        throw boost::system::system_error(failure);
    }
}

void read_headers(const http::response_header<>& header, HttpResponse& response) {
    response.status = header.result_int();
    response.content_type = std::string(header[http::field::content_type]);
    if (const auto found = header.find("Inference-Header-Content-Length"); found != header.end()) {
        response.kserve_header_length = std::string(found->value());
    }
    std::time_t now = std::time(nullptr);
    if (const auto date = parse_http_date(std::string(header[http::field::date]))) {
        now = *date;  // the server's own clock, for a date it states itself
    }
    if (const auto found = header.find("retry-after-ms"); found != header.end()) {
        double milliseconds = -1;
        const auto value = found->value();
        const auto parsed = std::from_chars(value.data(), value.data() + value.size(), milliseconds);
        if (parsed.ec == std::errc{} && milliseconds >= 0 && milliseconds < 86'400'000.0) {
            response.retry_after = std::chrono::milliseconds(static_cast<std::int64_t>(milliseconds));
        }
    }
    if (!response.retry_after) {
        if (const auto found = header.find(http::field::retry_after); found != header.end()) {
            response.retry_after = parse_retry_after(std::string(found->value()), now);
        }
    }
}

using Parser = http::response_parser<http::buffer_body>;

/// The body of a response with Content-Length, read straight into its buffer.
template <class Stream>
asio::awaitable<void> read_sized_body(Stream& stream, beast::flat_buffer& buffer, const Parser& parser,
                                      std::uint64_t length, std::uint64_t limit, Exchange& exchange) {
    BodyBuffer& body = *exchange.response.body;
    const auto wanted = static_cast<std::size_t>(std::min(length, limit));
    body.resize(wanted);
    const std::size_t present = std::min(buffer.size(), wanted);
    asio::buffer_copy(asio::buffer(body.data(), present), buffer.data());
    buffer.consume(present);
    if (present < wanted) {
        const auto read =
            co_await asio::async_read(stream, asio::buffer(body.data() + present, wanted - present), kAwaitTuple);
        if (std::get<0>(read)) {
            exchange.failure = std::get<0>(read);
            throw_if_aborted(exchange.failure);
            co_return;
        }
    }
    exchange.reusable = parser.get().keep_alive() && wanted == length && buffer.size() == 0;
}

/// A chunked body, or one that ends with the connection.
template <class Stream>
asio::awaitable<void> read_parsed_body(Stream& stream, beast::flat_buffer& buffer, Parser& parser, std::uint64_t limit,
                                       bool success, Exchange& exchange) {
    BodyBuffer& body = *exchange.response.body;
    std::size_t filled = 0;
    while (!parser.is_done()) {
        if (filled > limit) {
            exchange.too_large = success;
            body.resize(static_cast<std::size_t>(limit));
            co_return;
        }
        if (filled == body.capacity() || body.capacity() == 0) {
            // One byte more than allowed tells a body at the limit from one above it.
            const auto next = std::max<std::uint64_t>(std::uint64_t{64} << 10U, std::uint64_t{body.capacity()} * 2);
            body.resize(filled);
            body.reserve(static_cast<std::size_t>(std::min(next, std::max<std::uint64_t>(limit + 1, filled + 1))));
        }
        const std::size_t room = body.capacity() - filled;
        parser.get().body().data = body.data() + filled;
        parser.get().body().size = room;
        parser.get().body().more = true;
        const auto read = co_await http::async_read(stream, buffer, parser, kAwaitTuple);
        filled += room - parser.get().body().size;
        body.resize(filled);
        const error_code failure = std::get<0>(read);
        if (failure && failure != http::error::need_buffer) {
            exchange.failure = failure;
            throw_if_aborted(failure);
            co_return;
        }
    }
    if (filled > limit) {
        exchange.too_large = success;
        body.resize(static_cast<std::size_t>(limit));
        co_return;
    }
    exchange.reusable = parser.get().keep_alive() && buffer.size() == 0;
}

template <class Stream>
asio::awaitable<Exchange> exchange_on(Stream& stream, beast::flat_buffer& buffer, const HttpRequest& request,
                                      const std::string& head, BufferPool& buffers, TrafficCounters& traffic) {
    Exchange exchange;
    std::array<asio::const_buffer, 2> message{asio::buffer(head), asio::const_buffer()};
    if (request.body) {
        message[1] = asio::buffer(*request.body);
    }
    const auto written = co_await asio::async_write(stream, message, kAwaitTuple);
    traffic.bytes_sent += std::get<1>(written);
    const error_code write_failure = std::get<0>(written);
    throw_if_aborted(write_failure);

    // A server may refuse a request before it has read all of it: look for an answer even after a failed write.
    Parser parser;
    parser.header_limit(64U << 10U);
    parser.body_limit(boost::none);
    const auto header_read = co_await http::async_read_header(stream, buffer, parser, kAwaitTuple);
    exchange.any_byte = parser.got_some() || buffer.size() > 0;
    if (const error_code failure = std::get<0>(header_read)) {
        throw_if_aborted(failure);
        exchange.malformed = exchange.any_byte && failure != http::error::partial_message &&
                             failure != http::error::end_of_stream &&
                             failure.category() == http::make_error_code(http::error::bad_version).category();
        exchange.failure = write_failure && !exchange.any_byte ? write_failure : failure;
        co_return exchange;
    }
    HttpResponse& response = exchange.response;
    read_headers(parser.get().base(), response);
    response.body = buffers.acquire();
    response.body->reserve(1);  // an empty body has its padding too
    const bool success = is_success(response);
    const std::uint64_t limit = success ? request.response_limit : kErrorBodyLimit;
    const auto length = parser.content_length();
    if (parser.is_done()) {
        exchange.reusable = parser.get().keep_alive() && buffer.size() == 0;
    } else if (length && !parser.chunked()) {
        if (success && *length > limit) {
            exchange.too_large = true;
            co_return exchange;
        }
        co_await read_sized_body(stream, buffer, parser, *length, limit, exchange);
    } else {
        co_await read_parsed_body(stream, buffer, parser, limit, success, exchange);
    }
    traffic.bytes_received += response.body->size();
    exchange.reusable = exchange.reusable && !write_failure;
    co_return exchange;
}

bool is_address(const std::string& host) {
    error_code failure;
    asio::ip::make_address(host, failure);
    return !failure;
}

}  // namespace

struct HttpPool::Implementation {
    Implementation(asio::any_io_executor the_executor, EndpointUrl the_url, std::shared_ptr<asio::ssl::context> the_tls,
                   std::shared_ptr<BufferPool> the_buffers, std::shared_ptr<TrafficCounters> the_traffic,
                   HttpPoolOptions the_options)
        : executor(std::move(the_executor)),
          url(std::move(the_url)),
          tls(std::move(the_tls)),
          buffers(std::move(the_buffers)),
          traffic(std::move(the_traffic)),
          options(std::move(the_options)) {}

    [[nodiscard]] FetchError failure(FailureKind kind, const std::string& what) const {
        return FetchError{kind, url.name + ": " + what, std::nullopt};
    }

    /// The most recently used connection that is not too old.
    std::unique_ptr<Connection> take_idle() {
        retire_old();
        if (idle.empty()) {
            return nullptr;
        }
        auto connection = std::move(idle.back());
        idle.pop_back();
        return connection;
    }

    void retire_old() {
        const auto oldest = std::chrono::steady_clock::now() - options.idle_limit;
        // In order of their last use.
        const auto fresh = std::find_if(idle.begin(), idle.end(),
                                        [&](const auto& connection) { return connection->idle_since > oldest; });
        idle.erase(idle.begin(), fresh);
    }

    void keep(std::unique_ptr<Connection> connection) {
        retire_old();
        if (closed || idle.size() >= options.max_idle) {
            return;
        }
        connection->idle_since = std::chrono::steady_clock::now();
        idle.push_back(std::move(connection));
    }

    /// Addresses of the host: kept until a connection fails.
    asio::awaitable<FetchResult<std::vector<tcp::endpoint>>> resolve() {
        if (!addresses.empty()) {
            co_return addresses;
        }
        error_code not_an_address;
        const auto address = asio::ip::make_address(url.host, not_an_address);
        if (!not_an_address) {
            addresses.emplace_back(address, url.port);
            co_return addresses;
        }
        tcp::resolver resolver(executor);
        const auto resolved = co_await resolver.async_resolve(url.host, std::to_string(url.port), kAwaitTuple);
        if (const error_code failed = std::get<0>(resolved)) {
            throw_if_aborted(failed);
            const bool unknown = failed == asio::error::host_not_found || failed == asio::error::no_data;
            co_return failure(unknown ? FailureKind::rejected : FailureKind::connection,
                              "host '" + url.host + "' cannot be resolved: " + failed.message());
        }
        addresses.clear();
        for (const auto& entry : std::get<1>(resolved)) {
            addresses.push_back(entry.endpoint());
        }
        co_return addresses;
    }

    static asio::awaitable<error_code> connect_to(tcp::socket& socket, tcp::endpoint address) {
        error_code failed;
        socket.close(failed);
        socket.open(address.protocol(), failed);
        if (failed) {
            co_return failed;
        }
        const auto connected = co_await socket.async_connect(address, kAwaitTuple);
        co_return std::get<0>(connected);
    }

    asio::awaitable<FetchResult<std::unique_ptr<Connection>>> open() {
        const auto targets = co_await resolve();
        if (!targets) {
            co_return targets.error();
        }
        tcp::socket socket(executor);
        error_code failed = asio::error::host_not_found;
        for (std::size_t i = 0; i < targets->size(); ++i) {
            auto attempt = connect_to(socket, (*targets)[i]);
            if (i + 1 < targets->size()) {
                const auto outcome = co_await with_deadline(std::move(attempt), options.connect_limit);
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
            addresses.clear();
            co_return failure(FailureKind::connection, "cannot connect: " + failed.message());
        }
        ++traffic->connections_opened;
        error_code ignored;
        socket.set_option(tcp::no_delay(true), ignored);
        socket.set_option(asio::socket_base::keep_alive(true), ignored);
        if (!url.tls) {
            co_return std::make_unique<Connection>(std::move(socket));
        }
        co_return co_await secure(std::move(socket));
    }

    asio::awaitable<FetchResult<std::unique_ptr<Connection>>> secure(tcp::socket socket) {
        auto connection = std::make_unique<Connection>(TlsStream(std::move(socket), *tls));
        auto& stream = std::get<TlsStream>(connection->stream);
        if (!is_address(url.host)) {
            SSL_set_tlsext_host_name(stream.native_handle(), url.host.c_str());
        }
        stream.set_verify_callback(asio::ssl::host_name_verification(url.host));
        const auto shaken = co_await stream.async_handshake(asio::ssl::stream_base::client, kAwaitTuple);
        if (const error_code failed = std::get<0>(shaken)) {
            throw_if_aborted(failed);
            // What comes from OpenSSL is a refusal; what comes from the socket is a lost connection.
            const bool refusal = failed.category() == asio::error::get_ssl_category();
            std::string why = failed.message();
            if (const long verdict = SSL_get_verify_result(stream.native_handle()); verdict != X509_V_OK) {
                why = X509_verify_cert_error_string(verdict);
            }
            co_return failure(refusal ? FailureKind::rejected : FailureKind::connection,
                              "TLS handshake failed: " + why);
        }
        co_return connection;
    }

    [[nodiscard]] std::string head_of(const HttpRequest& request) const {
        std::string head = request.post ? "POST " : "GET ";
        head += request.target;
        head += " HTTP/1.1\r\nHost: " + url.host_header;
        head += "\r\nUser-Agent: " + options.user_agent;
        head += "\r\nAccept: application/octet-stream, application/json\r\nAccept-Encoding: identity\r\n";
        if (!options.bearer.empty()) {
            head += "Authorization: Bearer " + options.bearer + "\r\n";
        }
        if (request.post) {
            head += "Content-Type: " + request.content_type + "\r\n";
            head += "Content-Length: " + std::to_string(request.body ? request.body->size() : 0) + "\r\n";
        }
        if (request.kserve_header_length) {
            head += "Inference-Header-Content-Length: " + std::to_string(*request.kserve_header_length) + "\r\n";
        }
        head += "\r\n";
        return head;
    }

    asio::awaitable<Exchange> exchange(Connection& connection, const HttpRequest& request, const std::string& head) {
        if (auto* plain = std::get_if<PlainStream>(&connection.stream)) {
            co_return co_await exchange_on(*plain, connection.buffer, request, head, *buffers, *traffic);
        }
        co_return co_await exchange_on(std::get<TlsStream>(connection.stream), connection.buffer, request, head,
                                       *buffers, *traffic);
    }

    asio::awaitable<FetchResult<HttpResponse>> request(HttpRequest request) {
        ++traffic->requests;
        const std::string head = head_of(request);
        auto connection = take_idle();
        if (connection) {
            auto kept = co_await exchange(*connection, request, head);
            const bool stale = kept.failure && !kept.any_byte;
            if (!stale) {
                co_return finish(std::move(connection), std::move(kept), request);
            }
            ++traffic->stale_connections;
        }
        auto opened = co_await open();
        if (!opened) {
            co_return opened.error();
        }
        connection = std::move(*opened);
        auto fresh = co_await exchange(*connection, request, head);
        co_return finish(std::move(connection), std::move(fresh), request);
    }

    FetchResult<HttpResponse> finish(std::unique_ptr<Connection> connection, Exchange exchange,
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

    asio::any_io_executor executor;
    EndpointUrl url;
    std::shared_ptr<asio::ssl::context> tls;
    std::shared_ptr<BufferPool> buffers;
    std::shared_ptr<TrafficCounters> traffic;
    HttpPoolOptions options;
    std::vector<std::unique_ptr<Connection>> idle;
    std::vector<tcp::endpoint> addresses;
    bool closed = false;
};

HttpPool::HttpPool(asio::any_io_executor executor, EndpointUrl url, std::shared_ptr<asio::ssl::context> tls,
                   std::shared_ptr<BufferPool> buffers, std::shared_ptr<TrafficCounters> traffic,
                   HttpPoolOptions options)
    : implementation_(std::make_unique<Implementation>(std::move(executor), std::move(url), std::move(tls),
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
    return implementation_->url;
}

std::size_t HttpPool::idle_count() const noexcept {
    return implementation_->idle.size();
}

Result<std::shared_ptr<asio::ssl::context>> make_tls_client_context(const std::string& ca_file) {
    auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
    error_code failed;
    context->set_default_verify_paths(failed);
    if (!ca_file.empty()) {
        context->load_verify_file(ca_file, failed);
        if (failed) {
            return invalid_input("teacher ca_file '" + ca_file +
                                 "' cannot be read as PEM certificates: " + failed.message());
        }
    }
    context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                         asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
    context->set_verify_mode(asio::ssl::verify_peer);
    return context;
}

}  // namespace distilld

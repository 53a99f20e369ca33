#include "pipeline/teacher/transport/http_connection.hpp"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/system/system_error.hpp>
#include <charconv>
#include <ctime>
#include <utility>

#include "pipeline/async/abort.hpp"
#include "pipeline/async/tuple.hpp"
#include "pipeline/teacher/transport/http_failure.hpp"

namespace distilld {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

void read_headers(const http::response_header<>& header, const HttpRequest& request, HttpResponse& response) {
    response.status = header.result_int();
    response.content_type = std::string(header[http::field::content_type]);
    for (const std::string& name : request.answer_headers) {
        if (const auto found = header.find(name); found != header.end()) {
            response.headers.push_back({name, std::string(found->value())});
        }
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
                                      std::uint64_t length, std::uint64_t limit, HttpExchange& exchange,
                                      TrafficCounters& traffic) {
    BodyBuffer& body = *exchange.response.body;
    const auto wanted = static_cast<std::size_t>(std::min(length, limit));
    body.start(wanted);
    body.resize(wanted);
    const std::size_t present = std::min(buffer.size(), wanted);
    asio::buffer_copy(asio::buffer(body.data(), present), buffer.data());
    buffer.consume(present);
    traffic.bytes_received += present;
    if (present < wanted) {
        const auto read =
            co_await asio::async_read(stream, asio::buffer(body.data() + present, wanted - present), kTuple);
        traffic.bytes_received += std::get<1>(read);
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
                                       bool success, HttpExchange& exchange, TrafficCounters& traffic) {
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
        const auto read = co_await http::async_read(stream, buffer, parser, kTuple);
        traffic.bytes_received += room - parser.get().body().size;
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
    body.trim();
    exchange.reusable = parser.get().keep_alive() && buffer.size() == 0;
}

template <class Stream>
asio::awaitable<HttpExchange> exchange_on(Stream& stream, beast::flat_buffer& buffer, const HttpRequest& request,
                                          const std::string& head, BufferPool& buffers, TrafficCounters& traffic) {
    HttpExchange exchange;
    std::array<asio::const_buffer, 2> message{asio::buffer(head), asio::const_buffer()};
    if (request.body) {
        message[1] = asio::buffer(*request.body);
    }
    const auto written = co_await asio::async_write(stream, message, kTuple);
    traffic.bytes_sent += std::get<1>(written);
    const error_code write_failure = std::get<0>(written);
    throw_if_aborted(write_failure);

    // A server may refuse a request before it has read all of it: look for an answer even after a failed write.
    Parser parser;
    parser.header_limit(64U << 10U);
    parser.body_limit(boost::none);
    const auto header_read = co_await http::async_read_header(stream, buffer, parser, kTuple);
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
    read_headers(parser.get().base(), request, response);
    const bool success = is_success(response);
    const std::uint64_t limit = success ? request.response_limit : kErrorBodyLimit;
    const auto length = parser.content_length();
    response.body = buffers.acquire(length ? static_cast<std::size_t>(std::min<std::uint64_t>(*length, limit)) : 0);
    response.body->reserve(1);  // an empty body has its padding too
    if (parser.is_done()) {
        exchange.reusable = parser.get().keep_alive() && buffer.size() == 0;
    } else if (length && !parser.chunked()) {
        if (success && *length > limit) {
            exchange.too_large = true;
            co_return exchange;
        }
        co_await read_sized_body(stream, buffer, parser, *length, limit, exchange, traffic);
    } else {
        co_await read_parsed_body(stream, buffer, parser, limit, success, exchange, traffic);
    }
    exchange.reusable = exchange.reusable && !write_failure;
    co_return exchange;
}

template <class Stream>
class StreamConnection final : public HttpConnection {
  public:
    explicit StreamConnection(Stream stream) : stream_(std::move(stream)) {}

    asio::awaitable<HttpExchange> exchange(const HttpRequest& request, const std::string& head, BufferPool& buffers,
                                           TrafficCounters& traffic) override {
        return exchange_on(stream_, buffer_, request, head, buffers, traffic);
    }

  private:
    Stream stream_;
    beast::flat_buffer buffer_{std::size_t{128} << 10U};
};

}  // namespace

std::unique_ptr<HttpConnection> make_http_connection(asio::ip::tcp::socket socket) {
    return std::make_unique<StreamConnection<asio::ip::tcp::socket>>(std::move(socket));
}

std::unique_ptr<HttpConnection> make_http_connection(asio::ssl::stream<asio::ip::tcp::socket> stream) {
    return std::make_unique<StreamConnection<asio::ssl::stream<asio::ip::tcp::socket>>>(std::move(stream));
}

void throw_if_aborted(error_code failure) {
    if (is_abort(failure)) {
        throw boost::system::system_error(failure);
    }
}

}  // namespace distilld

#include "pipeline/teacher/transport/http_connection.hpp"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/system/system_error.hpp>
#include <charconv>
#include <ctime>
#include <span>
#include <utility>

#include "net/byte_stream.hpp"
#include "net/http_error.hpp"
#include "net/http_reader.hpp"
#include "pipeline/async/abort.hpp"
#include "pipeline/async/tuple.hpp"
#include "pipeline/teacher/transport/http_failure.hpp"

namespace distilld {
namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

namespace {

constexpr std::size_t kMaxHeaderBytes = std::size_t{64} << 10U;
constexpr std::size_t kBufferBytes = 2 * kMaxHeaderBytes;

void read_headers(const net::HttpHead& header, const HttpRequest& request, HttpResponse& response) {
    response.status = header.status;
    response.content_type = std::string(header.value("Content-Type"));
    for (const std::string& name : request.answer_headers) {
        if (const std::string* found = header.find(name)) {
            response.headers.push_back({name, *found});
        }
    }
    std::time_t now = std::time(nullptr);
    if (const auto date = parse_http_date(header.value("Date"))) {
        now = *date;  // the server's own clock, for a date it states itself
    }
    if (const std::string* value = header.find("retry-after-ms")) {
        double milliseconds = -1;
        const auto parsed = std::from_chars(value->data(), value->data() + value->size(), milliseconds);
        if (parsed.ec == std::errc{} && milliseconds >= 0 && milliseconds < 86'400'000.0) {
            response.retry_after = std::chrono::milliseconds(static_cast<std::int64_t>(milliseconds));
        }
    }
    if (!response.retry_after) {
        if (const std::string* value = header.find("Retry-After")) {
            response.retry_after = parse_retry_after(*value, now);
        }
    }
}

void note_failure(error_code failure, HttpExchange& exchange) {
    throw_if_aborted(failure);
    exchange.failure = failure;
    exchange.malformed = net::is_malformed(failure);
}

/// The body of a response with Content-Length, read straight into its buffer.
asio::awaitable<void> read_sized_body(net::ByteStream& stream, beast::flat_buffer& buffer, std::uint64_t length,
                                      std::uint64_t limit, HttpExchange& exchange, TrafficCounters& traffic) {
    BodyBuffer& body = *exchange.response.body;
    const auto wanted = static_cast<std::size_t>(std::min(length, limit));
    body.start(wanted);
    body.resize(wanted);
    const std::size_t present = std::min(buffer.size(), wanted);
    asio::buffer_copy(asio::buffer(body.data(), present), buffer.data());
    buffer.consume(present);
    traffic.bytes_received += present;
    if (present < wanted) {
        const auto space = asio::buffer(body.data() + present, wanted - present);
        const auto read = co_await asio::async_read(stream, space, kTuple);
        traffic.bytes_received += std::get<1>(read);
        note_failure(std::get<0>(read), exchange);
    }
    exchange.whole = !exchange.failure && wanted == length;
}

/// A chunked body, or one that ends with the connection.
asio::awaitable<void> read_parsed_body(net::ByteStream& stream, beast::flat_buffer& buffer, net::HttpReader& reader,
                                       std::uint64_t limit, bool success, HttpExchange& exchange,
                                       TrafficCounters& traffic) {
    BodyBuffer& body = *exchange.response.body;
    std::size_t filled = 0;
    while (!reader.done() && filled <= limit) {
        if (filled == body.capacity() || body.capacity() == 0) {
            // One byte more than allowed tells a body at the limit from one above it.
            const auto next = std::max<std::uint64_t>(std::uint64_t{64} << 10U, std::uint64_t{body.capacity()} * 2);
            body.resize(filled);
            body.reserve(static_cast<std::size_t>(std::min(next, std::max<std::uint64_t>(limit + 1, filled + 1))));
        }
        const std::span<char> space(reinterpret_cast<char*>(body.data()) + filled, body.capacity() - filled);
        const auto read = co_await reader.read_body(stream, buffer, space);
        traffic.bytes_received += read.bytes;
        filled += read.bytes;
        body.resize(filled);
        if (read.failure) {
            note_failure(read.failure, exchange);
            co_return;
        }
    }
    if (filled > limit) {
        exchange.too_large = success;
        body.resize(static_cast<std::size_t>(limit));
        co_return;
    }
    body.trim();
    exchange.whole = true;
}

asio::awaitable<HttpExchange> exchange_on(net::ByteStream& stream, beast::flat_buffer& buffer,
                                          const HttpRequest& request, const std::string& head, BufferPool& buffers,
                                          TrafficCounters& traffic) {
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
    const auto reader = net::make_answer_reader(kMaxHeaderBytes);
    const error_code failure = co_await reader->read_head(stream, buffer);
    exchange.any_byte = reader->begun() || buffer.size() > 0;
    if (failure) {
        note_failure(write_failure && !exchange.any_byte ? write_failure : failure, exchange);
        co_return exchange;
    }
    HttpResponse& response = exchange.response;
    read_headers(reader->head(), request, response);
    const bool success = is_success(response);
    const std::uint64_t limit = success ? request.response_limit : kErrorBodyLimit;
    const auto length = reader->content_length();
    response.body = buffers.acquire(length ? static_cast<std::size_t>(std::min<std::uint64_t>(*length, limit)) : 0);
    response.body->reserve(1);  // an empty body has its padding too
    if (reader->done()) {
        exchange.whole = true;
    } else if (length && !reader->chunked()) {
        if (success && *length > limit) {
            exchange.too_large = true;
            co_return exchange;
        }
        co_await read_sized_body(stream, buffer, *length, limit, exchange, traffic);
    } else {
        co_await read_parsed_body(stream, buffer, *reader, limit, success, exchange, traffic);
    }
    exchange.reusable = exchange.whole && reader->keep_alive() && !write_failure;
    if (exchange.reusable && (buffer.size() > 0 || stream.has_unread())) {
        // They would be taken for the next answer, and which of the two is the right one cannot be known.
        note_failure(net::HttpError::bytes_behind_answer, exchange);
    }
    co_return exchange;
}

class StreamConnection final : public HttpConnection {
  public:
    explicit StreamConnection(std::unique_ptr<net::ByteStream> stream) : stream_(std::move(stream)) {}

    asio::awaitable<HttpExchange> exchange(const HttpRequest& request, const std::string& head, BufferPool& buffers,
                                           TrafficCounters& traffic) override {
        return exchange_on(*stream_, buffer_, request, head, buffers, traffic);
    }

    bool is_quiet() override { return stream_->is_quiet(); }

  private:
    std::unique_ptr<net::ByteStream> stream_;
    beast::flat_buffer buffer_{kBufferBytes};
};

}  // namespace

std::unique_ptr<HttpConnection> make_http_connection(std::unique_ptr<net::ByteStream> stream) {
    return std::make_unique<StreamConnection>(std::move(stream));
}

void throw_if_aborted(error_code failure) {
    if (is_abort(failure)) {
        throw boost::system::system_error(failure);
    }
}

}  // namespace distilld

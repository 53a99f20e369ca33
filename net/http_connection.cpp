#include "net/http_connection.hpp"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/system/system_error.hpp>
#include <charconv>
#include <ctime>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "net/http_error.hpp"
#include "net/http_failure.hpp"
#include "net/http_reader.hpp"
#include "pipeline/async/abort.hpp"

namespace distilld {
namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

namespace {

constexpr std::size_t kMaxHeaderBytes = std::size_t{64} << 10U;
constexpr std::size_t kPieceBytes = std::size_t{16} << 10U;
constexpr std::size_t kBufferBytes = 2 * kMaxHeaderBytes;

void read_headers(const HttpHead& header, const HttpRequest& request, HttpResponse& response) {
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
    exchange.malformed = is_malformed(failure);
}

/// The body of a response with Content-Length, read straight into its buffer.
asio::awaitable<void> read_sized_body(ByteStream& stream, beast::flat_buffer& buffer, std::uint64_t length,
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
        const auto read = co_await stream.read(asio::buffer(body.data() + present, wanted - present));
        traffic.bytes_received += read.bytes;
        note_failure(read.failure, exchange);
    }
    exchange.whole = !exchange.failure && wanted == length;
}

/// A chunked body, or one that ends with the connection.
asio::awaitable<void> read_parsed_body(ByteStream& stream, beast::flat_buffer& buffer, HttpReader& reader,
                                       std::uint64_t limit, bool success, HttpExchange& exchange,
                                       TrafficCounters& traffic) {
    BodyBuffer& body = *exchange.response.body;
    std::size_t filled = 0;
    while (!reader.done() && filled <= limit) {
        if (filled == body.capacity() || body.capacity() == 0) {
            // One byte above the limit tells a body at the limit from a longer one.
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

/// A body that its user takes in pieces. The connection is not reused.
asio::awaitable<void> hand_on_body(ByteStream& stream, beast::flat_buffer& buffer, HttpReader& reader,
                                   const HttpRequest& request, HttpExchange& exchange, TrafficCounters& traffic) {
    std::vector<char> piece(kPieceBytes);
    while (!reader.done()) {
        if (request.time_limit.count() > 0) {
            stream.expires_after(request.time_limit);
        }
        const auto read = co_await reader.read_body(stream, buffer, piece);
        traffic.bytes_received += read.bytes;
        if (read.failure) {
            note_failure(read.failure, exchange);
            co_return;
        }
        if (read.bytes > 0 && !request.on_piece(std::string_view(piece.data(), read.bytes))) {
            co_return;
        }
    }
    exchange.whole = true;
}

}  // namespace

std::string request_head(const HttpRequest& request, const EndpointUrl& url, const HttpClient& client) {
    std::string head = request.method + " " + request.target + " HTTP/1.1\r\nHost: " + url.host_header;
    head += "\r\nUser-Agent: " + client.user_agent + "\r\nAccept-Encoding: identity\r\n";
    if (!client.bearer.empty()) {
        head += "Authorization: Bearer " + client.bearer + "\r\n";
    }
    if (!request.content_type.empty()) {
        head += "Content-Type: " + request.content_type + "\r\n";
    }
    if (request.method != "GET") {
        head += "Content-Length: " + std::to_string(request.body ? request.body->size() : 0) + "\r\n";
    }
    bool accepts = false;
    for (const HttpHeader& header : request.headers) {
        head += header.name + ": " + header.value + "\r\n";
        accepts = accepts || header.name == "Accept";
    }
    return head + (accepts ? "\r\n" : "Accept: application/octet-stream, application/json\r\n\r\n");
}

struct HttpConnection::Received : beast::flat_buffer {
    using beast::flat_buffer::flat_buffer;
};

HttpConnection::HttpConnection(ByteStream stream)
    : stream_(std::move(stream)), received_(std::make_unique<Received>(kBufferBytes)) {}

HttpConnection::~HttpConnection() = default;

asio::awaitable<HttpExchange> HttpConnection::exchange(const HttpRequest& request, const std::string& head,
                                                       BufferPool& buffers, TrafficCounters& traffic) {
    HttpExchange exchange;
    stream_.expires_never();  // clears the limit of the exchange before
    if (request.time_limit.count() > 0) {
        stream_.expires_after(request.time_limit);
    }
    asio::const_buffer body;
    if (request.body) {
        body = asio::buffer(*request.body);
    }
    const auto written = co_await stream_.write(asio::buffer(head), body);
    traffic.bytes_sent += written.bytes;
    const error_code write_failure = written.failure;
    throw_if_aborted(write_failure);

    // A server may refuse a request before it has read all of it, so read the answer even after a failed write.
    const auto reader = make_answer_reader(kMaxHeaderBytes);
    const error_code failure = co_await reader->read_head(stream_, *received_);
    exchange.any_byte = reader->begun() || received_->size() > 0;
    if (failure) {
        note_failure(write_failure && !exchange.any_byte ? write_failure : failure, exchange);
        co_return exchange;
    }
    HttpResponse& response = exchange.response;
    read_headers(reader->head(), request, response);
    if (request.on_piece && response.status == 200) {
        co_await hand_on_body(stream_, *received_, *reader, request, exchange, traffic);
        co_return exchange;
    }
    const bool success = is_success(response);
    const std::uint64_t limit = success ? request.response_limit : kErrorBodyLimit;
    const auto length = reader->content_length();
    response.body = buffers.acquire(length ? static_cast<std::size_t>(std::min<std::uint64_t>(*length, limit)) : 0);
    response.body->reserve(1);  // an empty body needs its padding too
    if (reader->done()) {
        exchange.whole = true;
    } else if (length && !reader->chunked()) {
        if (success && *length > limit) {
            exchange.too_large = true;
            co_return exchange;
        }
        co_await read_sized_body(stream_, *received_, *length, limit, exchange, traffic);
    } else {
        co_await read_parsed_body(stream_, *received_, *reader, limit, success, exchange, traffic);
    }
    exchange.reusable = exchange.whole && reader->keep_alive() && !write_failure;
    if (exchange.reusable && (received_->size() > 0 || stream_.has_unread())) {
        // They would be taken for the next answer, and which of the two is right is unknown.
        note_failure(HttpError::bytes_behind_answer, exchange);
    }
    co_return exchange;
}

void throw_if_aborted(error_code failure) {
    if (is_abort(failure)) {
        throw boost::system::system_error(failure);
    }
}

}  // namespace distilld

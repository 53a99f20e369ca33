#include "server/http/request_reader.hpp"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/verb.hpp>
#include <cctype>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "api/problem.hpp"
#include "base/join.hpp"
#include "net/http_error.hpp"
#include "net/http_reader.hpp"
#include "server/http/authenticator.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using boost::system::error_code;

constexpr std::size_t kMaxHeaderBytes = 32U << 10;
constexpr std::size_t kBodyPiece = 16U << 10;
constexpr std::size_t kMaxRequestIdLength = 128;
constexpr std::chrono::seconds kRefusalDeadline{2};

bool valid_request_id(std::string_view text) {
    const auto allowed = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' || c == ':';
    };
    return !text.empty() && text.size() <= kMaxRequestIdLength && std::all_of(text.begin(), text.end(), allowed);
}

void set_header(http::Headers& headers, std::string_view name, const std::string& value) {
    std::erase_if(headers, [name](const auto& header) { return beast::iequals(header.first, name); });
    headers.emplace_back(name, value);
}

/// For errors in the header or in the body's framing. nullopt: closed, reset or too slow (a timeout closes the socket).
std::optional<http::Response> refusal_of(const error_code& ec, std::uint64_t body_limit) {
    if (ec == bhttp::error::body_limit) {
        return make_problem(413, "the request body is larger than " + std::to_string(body_limit) + " bytes");
    }
    if (is_header_limit(ec)) {
        return make_problem(431, "the request header, or what goes with the chunks of the body, is larger than " +
                                     std::to_string(kMaxHeaderBytes) + " bytes");
    }
    if (is_malformed(ec)) {
        return make_problem(400, "the request is not HTTP/1.1: " + ec.message());
    }
    return std::nullopt;
}

void take_header(const HttpHead& message, bool keep_alive, const Connection& connection, const SessionContext& context,
                 IncomingRequest& incoming) {
    http::Request& request = incoming.request;
    Reply& reply = incoming.reply;
    request.method = message.method;
    request.headers = message.fields;
    request.remote = connection.remote;
    if (bhttp::string_to_verb(message.method) != bhttp::verb::unknown) {
        reply.method = request.method;
    }
    reply.version = message.version;
    reply.keep_alive = keep_alive && !context.stopping;
    reply.head = message.method == "HEAD";
    if (const auto id = message.value("X-Request-Id"); valid_request_id(id)) {
        reply.request_id = std::string(id);
    }
    set_header(request.headers, "x-request-id", reply.request_id);
}

/// Finds the route or sets the refusal. Returns "host:port" if the target has the absolute form.
std::string take_target(const HttpHead& message, const SessionContext& context, IncomingRequest& incoming) {
    http::Request& request = incoming.request;
    auto target = parse_target(message.target);
    if (message.version == 11 && message.count("Host") != 1) {
        incoming.refusal = make_problem(400, "exactly one Host header is needed");
        return {};
    }
    if (!target) {
        incoming.refusal = make_problem(400, target.error().message);
        return {};
    }
    request.path = std::move(target->path);
    request.query = std::move(target->query);
    incoming.reply.path = request.path;
    RouteMatch match = context.router.find(request.method, target->segments);
    incoming.open = match.open;
    if (match.route != nullptr) {
        incoming.route = match.route;
        incoming.reply.pattern = match.route->pattern;
        request.path_parameters = std::move(match.parameters);
        incoming.reply.subject = request.path_parameter("id");
    } else if (match.allowed.empty()) {
        incoming.refusal = make_problem(404, "there is nothing at " + request.path);
    } else {
        const std::string allow = joined(match.allowed);
        incoming.refusal = make_problem(405, request.path + " takes " + allow);
        incoming.refusal->headers.emplace_back("Allow", allow);
    }
    return std::move(target->authority);
}

/// Whether the authenticator refuses the request. Removes the key from the headers: no handler needs it, so none can
/// log it.
bool refused_at_the_door(const RequestHead& head, const SessionContext& context, IncomingRequest& incoming) {
    Authentication verdict;
    if (const auto authenticator = context.authenticator_of(head.route)) {
        verdict = authenticator->judge(head);
    }
    std::erase_if(incoming.request.headers,
                  [](const auto& header) { return beast::iequals(header.first, "authorization"); });
    if (verdict.caller) {
        incoming.reply.caller = verdict.caller->name;
    }
    incoming.request.caller = std::move(verdict.caller);
    if (!verdict.refusal) {
        return false;
    }
    incoming.refusal = std::move(verdict.refusal);
    incoming.reply.keep_alive = false;
    return true;
}

/// Reads a header into `incoming`. True: refuse the request at once, without reading its body.
bool take_head(const HttpReader& reader, const Connection& connection, const SessionContext& context,
               IncomingRequest& incoming) {
    const HttpHead& message = reader.head();
    take_header(message, reader.keep_alive(), connection, context, incoming);
    const std::string authority = take_target(message, context, incoming);
    const bool has_body = reader.chunked() || reader.content_length().value_or(0) > 0;
    const RequestHead known{incoming.request, authority, incoming.route, has_body, incoming.open};
    if (const auto problem = context.origin_check.refusal(known)) {
        incoming.refusal = http::to_response(*problem);
        incoming.reply.keep_alive = false;
        return true;
    }
    return refused_at_the_door(known, context, incoming);
}

asio::awaitable<error_code> ask_for_body(Connection& connection) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    connection.allow_transfer(0);
    const auto written = co_await connection.stream.write(asio::buffer(kContinue));
    co_return written.failure;
}

/// False: the client cannot be answered. Memory is allocated for what arrives, not for what is announced.
asio::awaitable<bool> read_body(Connection& connection, HttpReader& reader, std::uint64_t limit,
                                IncomingRequest& incoming) {
    reader.limit_body(limit);
    const auto length = reader.content_length();
    connection.allow_transfer(length.value_or(limit));
    std::string& body = incoming.request.body;
    while (!reader.done()) {
        const std::size_t filled = body.size();
        const std::size_t room = std::min<std::uint64_t>(kBodyPiece, length.value_or(filled + kBodyPiece) - filled);
        body.resize(filled + room);
        const std::span<char> space(body.data() + filled, room);
        const auto read = co_await reader.read_body(connection.stream, connection.buffer, space);
        body.resize(filled + read.bytes);
        if (read.failure) {
            incoming.reply.keep_alive = false;
            incoming.refusal = refusal_of(read.failure, limit);
            co_return incoming.refusal.has_value();
        }
    }
    co_return true;
}

IncomingRequest new_request(const Connection& connection, SessionContext& context) {
    IncomingRequest incoming;
    incoming.reply.remote = connection.remote;  // even without a valid header: refusals are limited by address
    incoming.reply.started = std::chrono::steady_clock::now();
    incoming.reply.request_id = context.next_request_id();
    return incoming;
}

}  // namespace

asio::awaitable<std::optional<IncomingRequest>> read_request(Connection& connection, SessionContext& context) {
    IncomingRequest incoming = new_request(connection, context);
    auto reader = make_request_reader(kMaxHeaderBytes);
    connection.stream.expires_after(context.options.header_timeout);
    const error_code no_head = co_await reader->read_head(connection.stream, connection.buffer);
    if (no_head) {
        incoming.refusal = refusal_of(no_head, 0);
        if (!incoming.refusal) {
            co_return std::nullopt;
        }
        co_return incoming;
    }
    connection.idle = false;
    if (take_head(*reader, connection, context, incoming)) {
        co_return incoming;
    }

    // Refusals that are possible before the body is read.
    const bool has_own_limit = incoming.route != nullptr && incoming.route->body_limit != 0;
    const std::uint64_t limit = has_own_limit ? incoming.route->body_limit : context.options.body_limit;
    const auto length = reader->content_length();
    if (length && *length > limit) {
        incoming.reply.keep_alive = false;
        if (!incoming.refusal) {
            incoming.refusal = refusal_of(bhttp::error::body_limit, limit);
        }
        co_return incoming;
    }
    const HttpHead& message = reader->head();
    if (const auto expect = message.value("Expect"); !expect.empty() && message.version == 11) {
        if (!beast::iequals(expect, "100-continue")) {
            incoming.refusal = make_problem(417, "the only expectation known is 100-continue");
        }
        if (incoming.refusal) {
            incoming.reply.keep_alive = false;  // the client may or may not send the body
            co_return incoming;
        }
        const error_code failed = co_await ask_for_body(connection);
        if (failed) {
            co_return std::nullopt;
        }
    }
    if (!incoming.refusal && incoming.route->streamed_body) {
        incoming.body = std::make_shared<StreamedBody>(connection, std::move(reader), limit);
        incoming.request.body_source = incoming.body;
        co_return incoming;
    }
    const bool read = co_await read_body(connection, *reader, limit, incoming);
    if (!read) {
        co_return std::nullopt;
    }
    co_return incoming;
}

asio::awaitable<std::optional<IncomingRequest>> read_request_when_full(Connection& connection,
                                                                       SessionContext& context) {
    const auto reader = make_request_reader(kMaxHeaderBytes);
    connection.stream.expires_after(kRefusalDeadline);
    const error_code no_head = co_await reader->read_head(connection.stream, connection.buffer);
    if (no_head) {
        co_return std::nullopt;
    }
    IncomingRequest incoming = new_request(connection, context);
    const bool refused = take_head(*reader, connection, context, incoming);
    incoming.reply.keep_alive = false;
    if (!refused && (incoming.route == nullptr || !incoming.route->vital)) {
        incoming.refusal = make_problem(503, "the server has no free connection");
        incoming.refusal->headers.emplace_back("Retry-After", "1");
    }
    co_return incoming;
}

}  // namespace distilld::http

#include "server/http/request_reader.hpp"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>

#include "api/problem.hpp"
#include "pipeline/async/tuple.hpp"
#include "server/http/doorkeeper.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using boost::system::error_code;
using HeadParser = bhttp::request_parser<bhttp::empty_body>;
using Head = bhttp::request<bhttp::empty_body>;

constexpr std::uint32_t kMaxHeaderBytes = 32U << 10;
constexpr std::size_t kMaxRequestIdLength = 128;
constexpr std::chrono::seconds kRefusalDeadline{2};

std::string_view as_view(beast::string_view text) {
    return {text.data(), text.size()};
}

bool valid_request_id(std::string_view text) {
    const auto allowed = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' || c == ':';
    };
    return !text.empty() && text.size() <= kMaxRequestIdLength && std::all_of(text.begin(), text.end(), allowed);
}

void set_header(api::Headers& headers, std::string_view name, const std::string& value) {
    std::erase_if(headers, [name](const auto& header) { return beast::iequals(header.first, name); });
    headers.emplace_back(name, value);
}

/// Nothing: closed, reset or too slow (a timeout closes the socket).
std::optional<api::Response> refusal_of_header(const error_code& ec) {
    if (ec == bhttp::error::header_limit || ec == bhttp::error::buffer_overflow) {
        return make_problem(431, "the request header is larger than " + std::to_string(kMaxHeaderBytes) + " bytes");
    }
    const bool malformed = ec.category() == bhttp::make_error_code(bhttp::error::end_of_stream).category() &&
                           ec != bhttp::error::end_of_stream && ec != bhttp::error::partial_message;
    if (malformed) {
        return make_problem(400, "the request is not HTTP/1.1: " + ec.message());
    }
    return std::nullopt;
}

/// Nothing: the peer has left meanwhile.
std::optional<api::Response> refusal_of_body(const error_code& ec, std::uint64_t limit) {
    if (ec == bhttp::error::body_limit) {
        return make_problem(413, "the request body is larger than " + std::to_string(limit) + " bytes");
    }
    if (ec == bhttp::error::bad_chunk || ec == bhttp::error::bad_chunk_extension) {
        return make_problem(400, "the request body is not chunked as it says: " + ec.message());
    }
    return std::nullopt;
}

void take_header(const Head& message, const Connection& connection, const SessionContext& context,
                 IncomingRequest& incoming) {
    api::Request& request = incoming.request;
    Reply& reply = incoming.reply;
    request.method = std::string(as_view(message.method_string()));
    for (const auto& field : message) {
        request.headers.emplace_back(as_view(field.name_string()), as_view(field.value()));
    }
    request.remote = connection.remote;
    if (message.method() != bhttp::verb::unknown) {
        reply.method = request.method;
    }
    reply.version = message.version();
    reply.keep_alive = message.keep_alive() && !context.stopping;
    reply.head = message.method() == bhttp::verb::head;
    if (const auto id = as_view(message["x-request-id"]); valid_request_id(id)) {
        reply.request_id = std::string(id);
    }
    reply.remote = request.remote;
    set_header(request.headers, "x-request-id", reply.request_id);
}

/// Finds the route, or says why there is none. The result is what the target has of the absolute form: "host:port".
std::string take_target(const Head& message, const SessionContext& context, IncomingRequest& incoming) {
    api::Request& request = incoming.request;
    auto target = parse_target(as_view(message.target()));
    if (message.version() == 11 && message.count(bhttp::field::host) != 1) {
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
        std::string allow;
        for (const auto& method : match.allowed) {
            allow += (allow.empty() ? "" : ", ") + method;
        }
        incoming.refusal = make_problem(405, request.path + " takes " + allow);
        incoming.refusal->headers.emplace_back("Allow", allow);
    }
    return std::move(target->authority);
}

/// Whether the request goes no further. Its key is taken out of the header: nobody behind needs it, so that nobody can
/// log it.
bool refused_at_the_door(const RequestHead& head, const SessionContext& context, IncomingRequest& incoming) {
    DoorVerdict verdict;
    if (context.options.doorkeeper) {
        verdict = context.options.doorkeeper->judge(head);
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

/// Reads a header into `incoming`. True: the request is to be refused at once, its body unread.
bool take_head(const HeadParser& head, const Connection& connection, const SessionContext& context,
               IncomingRequest& incoming) {
    const Head& message = head.get();
    take_header(message, connection, context, incoming);
    const std::string authority = take_target(message, context, incoming);
    const bool has_body = head.chunked() || head.content_length().value_or(0) > 0;
    const RequestHead known{incoming.request, authority, incoming.route, has_body, incoming.open};
    if (const auto problem = context.gate.refusal(known)) {
        incoming.refusal = api::to_response(*problem);
        incoming.reply.keep_alive = false;
        return true;
    }
    return refused_at_the_door(known, context, incoming);
}

asio::awaitable<error_code> ask_for_body(Connection& connection) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    connection.allow_transfer(0);
    const auto interim = asio::buffer(kContinue);
    const auto written = co_await asio::async_write(connection.stream, interim, kTuple);
    co_return std::get<0>(written);
}

/// False: there is nobody to tell.
asio::awaitable<bool> read_body(Connection& connection, HeadParser& head, std::uint64_t limit,
                                IncomingRequest& incoming) {
    const auto length = head.content_length();
    bhttp::request_parser<bhttp::string_body> parser(std::move(head));
    parser.body_limit(limit);
    connection.allow_transfer(length.value_or(limit));
    const auto read = co_await bhttp::async_read(connection.stream, connection.buffer, parser, kTuple);
    if (const error_code ec = std::get<0>(read)) {
        incoming.reply.keep_alive = false;
        incoming.refusal = refusal_of_body(ec, limit);
        co_return incoming.refusal.has_value();
    }
    incoming.request.body = std::move(parser.get().body());
    co_return true;
}

IncomingRequest new_request(SessionContext& context) {
    IncomingRequest incoming;
    incoming.reply.started = std::chrono::steady_clock::now();
    incoming.reply.request_id = context.next_request_id();
    return incoming;
}

}  // namespace

asio::awaitable<std::optional<IncomingRequest>> read_request(Connection& connection, SessionContext& context) {
    IncomingRequest incoming = new_request(context);
    HeadParser head;
    head.header_limit(kMaxHeaderBytes);
    head.body_limit(boost::none);
    connection.stream.expires_after(context.options.header_timeout);
    const auto head_read = co_await bhttp::async_read_header(connection.stream, connection.buffer, head, kTuple);
    if (const error_code ec = std::get<0>(head_read)) {
        incoming.refusal = refusal_of_header(ec);
        if (!incoming.refusal) {
            co_return std::nullopt;
        }
        co_return incoming;
    }
    connection.idle = false;
    if (take_head(head, connection, context, incoming)) {
        co_return incoming;
    }

    // What can be said before the body is read.
    const bool has_own_limit = incoming.route != nullptr && incoming.route->body_limit != 0;
    const std::uint64_t limit = has_own_limit ? incoming.route->body_limit : context.options.body_limit;
    const auto length = head.content_length();
    if (length && *length > limit) {
        incoming.reply.keep_alive = false;
        if (!incoming.refusal) {
            incoming.refusal = refusal_of_body(bhttp::error::body_limit, limit);
        }
        co_return incoming;
    }
    const Head& message = head.get();
    if (const auto expect = as_view(message[bhttp::field::expect]); !expect.empty() && message.version() == 11) {
        if (!beast::iequals(expect, "100-continue")) {
            incoming.refusal = make_problem(417, "the only expectation known is 100-continue");
        }
        if (incoming.refusal) {
            incoming.reply.keep_alive = false;  // whether the body comes all the same is not known
            co_return incoming;
        }
        const error_code failed = co_await ask_for_body(connection);
        if (failed) {
            co_return std::nullopt;
        }
    }
    if (!incoming.refusal && incoming.route->streamed_body) {
        incoming.body = std::make_shared<StreamedBody>(connection, std::move(head), limit);
        incoming.request.body_source = incoming.body;
        co_return incoming;
    }
    auto reading = read_body(connection, head, limit, incoming);
    const bool read = co_await std::move(reading);
    if (!read) {
        co_return std::nullopt;
    }
    co_return incoming;
}

asio::awaitable<std::optional<IncomingRequest>> read_request_when_full(Connection& connection,
                                                                       SessionContext& context) {
    HeadParser head;
    head.header_limit(kMaxHeaderBytes);
    head.body_limit(boost::none);
    connection.stream.expires_after(kRefusalDeadline);
    const auto head_read = co_await bhttp::async_read_header(connection.stream, connection.buffer, head, kTuple);
    if (std::get<0>(head_read)) {
        co_return std::nullopt;
    }
    IncomingRequest incoming = new_request(context);
    const bool refused = take_head(head, connection, context, incoming);
    incoming.reply.keep_alive = false;
    if (!refused && (incoming.route == nullptr || !incoming.route->vital)) {
        incoming.refusal = make_problem(503, "the server has as many connections as it takes");
        incoming.refusal->headers.emplace_back("Retry-After", "1");
    }
    co_return incoming;
}

}  // namespace distilld::http

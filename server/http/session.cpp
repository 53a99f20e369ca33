#include "server/http/session.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <exception>
#include <optional>

#include "api/problem.hpp"
#include "distilld_version.hpp"
#include "server/support/log.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using Clock = std::chrono::steady_clock;
using boost::system::error_code;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr std::uint32_t kHeaderLimit = 32U << 10;
constexpr std::size_t kBufferLimit = 256U << 10;
constexpr std::size_t kFirstRead = 4U << 10;
constexpr std::size_t kRequestIdLimit = 128;
constexpr unsigned kClientClosedRequest = 499;  // as nginx counts it; never sent
/// A transfer may take its base time and what this rate needs for its size: a slow peer is fine, a stuck one is not.
constexpr std::uint64_t kSlowestBytesPerSecond = 64U << 10;
constexpr std::chrono::seconds kTransferBase{30};
constexpr std::chrono::seconds kRefusalDeadline{2};
constexpr std::chrono::seconds kLingerDeadline{1};
constexpr std::size_t kLingerLimit = 1U << 20;

std::chrono::seconds transfer_deadline(std::uint64_t bytes) {
    return kTransferBase + std::chrono::seconds(bytes / kSlowestBytesPerSecond);
}

api::Response make_problem(unsigned status, std::string detail) {
    api::Problem problem;
    problem.status = status;
    problem.detail = std::move(detail);
    return api::to_response(problem);
}

std::string_view as_view(beast::string_view text) {
    return {text.data(), text.size()};
}

bool valid_request_id(std::string_view text) {
    const auto allowed = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' || c == ':';
    };
    return !text.empty() && text.size() <= kRequestIdLimit && std::all_of(text.begin(), text.end(), allowed);
}

std::string http_date() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::array<char, 64> text{};
    const std::size_t size = std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
    return {text.data(), size};
}

/// Fields of a request whose header has been read; target and body come later.
template <class Message>
api::Request head_of(const Message& message, const std::string& remote) {
    api::Request request;
    request.method = std::string(as_view(message.method_string()));
    for (const auto& field : message) {
        request.headers.emplace_back(as_view(field.name_string()), as_view(field.value()));
    }
    request.remote = remote;
    return request;
}

void set_header(api::Headers& headers, std::string_view name, const std::string& value) {
    std::erase_if(headers, [name](const auto& header) { return beast::iequals(header.first, name); });
    headers.emplace_back(name, value);
}

/// Starts the handler inside a coroutine, so that one which throws before its first suspension is caught alike. `route`
/// lives as long as the server's routing table.
asio::awaitable<api::Response> invoke(const Route* route, api::Request request) {
    co_return co_await route->handler(std::move(request));
}

template <class Body>
void set_head(bhttp::response<Body>& message, const api::Response& response, unsigned version, bool keep_alive,
              const std::string& request_id) {
    message.version(version);
    message.result(response.status);
    message.set(bhttp::field::date, http_date());
    message.set(bhttp::field::server, std::string("distilld/") + kVersion);
    if (response.status != 204 && response.status != 304 && !response.content_type.empty()) {
        message.set(bhttp::field::content_type, response.content_type);
    }
    message.set("x-request-id", request_id);
    for (const auto& [name, value] : response.headers) {
        message.insert(name, value);
    }
    message.keep_alive(keep_alive);
}

}  // namespace

Session::Session(asio::ip::tcp::socket socket, std::shared_ptr<SessionContext> context)
    : context_(std::move(context)),
      stream_(std::move(socket)),
      buffer_(kBufferLimit),
      forever_(stream_.get_executor(), Clock::time_point::max()) {
    error_code ec;
    stream_.socket().set_option(asio::ip::tcp::no_delay(true), ec);
    const auto peer = stream_.socket().remote_endpoint(ec);
    if (!ec) {
        remote_ = peer.address().to_string();
    }
}

void Session::stop() {
    if (phase_ == Phase::answering) {
        return;
    }
    error_code ignored;
    stream_.socket().cancel(ignored);
    forever_.cancel();
}

asio::awaitable<void> Session::run() {
    bool first = true;
    bool answered = false;
    while (!context_->stopping) {
        phase_ = Phase::waiting;
        if (buffer_.size() == 0) {
            stream_.expires_after(first ? context_->options.header_timeout : context_->options.idle_timeout);
            const auto space = buffer_.prepare(kFirstRead);
            const auto read = co_await stream_.async_read_some(space, kTuple);
            if (std::get<0>(read)) {
                co_await close(false);
                co_return;
            }
            buffer_.commit(std::get<1>(read));
        }
        first = false;
        const bool go_on = co_await exchange();
        answered = true;
        if (!go_on) {
            break;
        }
    }
    phase_ = Phase::waiting;
    co_await close(answered);
}

asio::awaitable<void> Session::refuse() {
    // The request is read first: closing a socket with unread bytes resets it, and the answer would be lost.
    stream_.expires_after(kRefusalDeadline);
    bhttp::request_parser<bhttp::empty_body> parser;
    parser.header_limit(kHeaderLimit);
    const auto read = co_await bhttp::async_read_header(stream_, buffer_, parser, kTuple);
    if (!std::get<0>(read)) {
        Reply reply;
        reply.method = "OTHER";
        reply.started = Clock::now();
        reply.request_id = next_request_id();
        api::Response response = make_problem(503, "the server has as many connections as it takes");
        response.headers.emplace_back("Retry-After", "1");
        co_await send(std::move(response), std::move(reply));
    }
    co_await close(true);
}

asio::awaitable<bool> Session::exchange() {
    Reply reply;
    reply.started = Clock::now();
    reply.method = "OTHER";
    reply.request_id = next_request_id();

    bhttp::request_parser<bhttp::empty_body> head;
    head.header_limit(kHeaderLimit);
    head.body_limit(boost::none);
    stream_.expires_after(context_->options.header_timeout);
    const auto head_read = co_await bhttp::async_read_header(stream_, buffer_, head, kTuple);
    if (const error_code ec = std::get<0>(head_read)) {
        if (ec == bhttp::error::header_limit || ec == bhttp::error::buffer_overflow) {
            api::Response response =
                make_problem(431, "the request header is larger than " + std::to_string(kHeaderLimit) + " bytes");
            co_return co_await send(std::move(response), std::move(reply));
        }
        const bool malformed = ec.category() == bhttp::make_error_code(bhttp::error::end_of_stream).category() &&
                               ec != bhttp::error::end_of_stream && ec != bhttp::error::partial_message;
        if (malformed) {
            api::Response response = make_problem(400, "the request is not HTTP/1.1: " + ec.message());
            co_return co_await send(std::move(response), std::move(reply));
        }
        co_return false;  // closed, reset or too slow: there is nobody to tell (a timeout closes the socket)
    }
    phase_ = Phase::answering;

    const auto& message = head.get();
    api::Request request = head_of(message, remote_);
    if (message.method() != bhttp::verb::unknown) {
        reply.method = request.method;
    }
    reply.version = message.version();
    reply.keep_alive = message.keep_alive() && !context_->stopping;
    reply.head = message.method() == bhttp::verb::head;
    if (const auto id = as_view(message["x-request-id"]); valid_request_id(id)) {
        reply.request_id = std::string(id);
    }
    set_header(request.headers, "x-request-id", reply.request_id);

    // What can be said before the body is read. A refused request's body is still read while it is within the limit,
    // so that the connection stays usable.
    std::optional<api::Response> early;
    RouteMatch match;
    auto target = parse_target(as_view(message.target()));
    if (message.version() == 11 && message.count(bhttp::field::host) != 1) {
        early = make_problem(400, "exactly one Host header is needed");
    } else if (!target) {
        early = make_problem(400, target.error().message);
    } else {
        request.path = std::move(target->path);
        request.query = std::move(target->query);
        match = context_->router.find(request.method, target->segments);
        if (match.route != nullptr) {
            reply.pattern = match.route->pattern;
            request.path_parameters = std::move(match.parameters);
        } else if (match.allowed.empty()) {
            early = make_problem(404, "there is nothing at " + request.path);
        } else {
            std::string allow;
            for (const auto& method : match.allowed) {
                allow += (allow.empty() ? "" : ", ") + method;
            }
            early = make_problem(405, request.path + " takes " + allow);
            early->headers.emplace_back("Allow", allow);
        }
    }

    const std::uint64_t limit = context_->options.body_limit;
    const auto length = head.content_length();
    const auto too_large = [limit] {
        return make_problem(413, "the request body is larger than " + std::to_string(limit) + " bytes");
    };
    if (length && *length > limit) {
        reply.keep_alive = false;
        api::Response response = early ? std::move(*early) : too_large();
        co_return co_await send(std::move(response), std::move(reply));
    }
    if (const auto expect = as_view(message[bhttp::field::expect]); !expect.empty() && message.version() == 11) {
        if (!beast::iequals(expect, "100-continue")) {
            early = make_problem(417, "the only expectation known is 100-continue");
        }
        if (early) {
            reply.keep_alive = false;  // whether the body comes all the same is not known
            api::Response response = std::move(*early);
            co_return co_await send(std::move(response), std::move(reply));
        }
        static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
        stream_.expires_after(kTransferBase);
        const auto interim = asio::buffer(kContinue);
        const auto written = co_await asio::async_write(stream_, interim, kTuple);
        if (std::get<0>(written)) {
            co_return false;
        }
    }

    bhttp::request_parser<bhttp::string_body> parser(std::move(head));
    parser.body_limit(limit);
    stream_.expires_after(transfer_deadline(length.value_or(limit)));
    const auto body_read = co_await bhttp::async_read(stream_, buffer_, parser, kTuple);
    if (const error_code ec = std::get<0>(body_read)) {
        reply.keep_alive = false;
        if (ec == bhttp::error::body_limit) {
            api::Response response = too_large();
            co_return co_await send(std::move(response), std::move(reply));
        }
        if (ec == bhttp::error::bad_chunk || ec == bhttp::error::bad_chunk_extension) {
            api::Response response = make_problem(400, "the request body is not chunked as it says: " + ec.message());
            co_return co_await send(std::move(response), std::move(reply));
        }
        co_return false;
    }
    request.body = std::move(parser.get().body());

    api::Response response;
    if (early) {
        response = std::move(*early);
    } else {
        std::string label = request.method + " " + reply.pattern + " (request " + reply.request_id + ")";
        auto calling = call_handler(match.route, std::move(request), std::move(label));
        std::optional<api::Response> answer = co_await std::move(calling);
        if (!answer) {
            observe(reply, kClientClosedRequest);
            co_return false;
        }
        response = std::move(*answer);
    }
    if (context_->stopping) {
        reply.keep_alive = false;
    }
    if (response.stream) {
        co_return co_await send_stream(std::move(response), std::move(reply));
    }
    co_return co_await send(std::move(response), std::move(reply));
}

asio::awaitable<std::optional<api::Response>> Session::call_handler(const Route* route, api::Request request,
                                                                    std::string label) {
    const auto executor = co_await asio::this_coro::executor;
    stream_.expires_never();
    asio::steady_timer deadline(executor, context_->options.handler_timeout);
    auto watch = route->only_for_client ? until_peer_leaves(false) : forever();
    auto group = asio::experimental::make_parallel_group(
        asio::co_spawn(executor, invoke(route, std::move(request)), asio::deferred),
        deadline.async_wait(asio::deferred), asio::co_spawn(executor, std::move(watch), asio::deferred));
    auto outcome = co_await group.async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
    const auto state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) {
        throw boost::system::system_error(asio::error::operation_aborted);
    }
    auto& [order, failure, response, timer_error, watch_failure] = outcome;
    if (order[0] == 2) {
        co_return std::nullopt;
    }
    if (order[0] == 1) {
        log::warn("http",
                  label + ": no answer within " + std::to_string(context_->options.handler_timeout.count()) + " s");
        api::Response late = make_problem(503, "the request took longer than the server allows");
        late.headers.emplace_back("Retry-After", "1");
        co_return late;
    }
    if (!failure) {
        co_return std::move(response);
    }
    try {
        std::rethrow_exception(failure);
    } catch (const std::exception& error) {
        log::error("http", label + ": " + error.what());
    } catch (...) {
        log::error("http", label + ": the handler threw something that is no exception");
    }
    co_return make_problem(500, "the server failed on this request; its log says more under the request id");
}

asio::awaitable<bool> Session::send(api::Response response, Reply reply) {
    const unsigned status = response.status;
    error_code failed;
    if (reply.head || status == 204 || status == 304) {
        bhttp::response<bhttp::empty_body> message;
        set_head(message, response, reply.version, reply.keep_alive, reply.request_id);
        if (reply.head && !response.stream) {
            message.content_length(response.body.size());
        }
        if (reply.head && response.stream && reply.version == 11) {
            message.chunked(true);
        }
        bhttp::response_serializer<bhttp::empty_body> serializer(message);
        stream_.expires_after(kTransferBase);
        const auto written = co_await bhttp::async_write_header(stream_, serializer, kTuple);
        failed = std::get<0>(written);
    } else {
        bhttp::response<bhttp::string_body> message;
        set_head(message, response, reply.version, reply.keep_alive, reply.request_id);
        message.body() = std::move(response.body);
        message.prepare_payload();
        stream_.expires_after(transfer_deadline(message.body().size()));
        const auto written = co_await bhttp::async_write(stream_, message, kTuple);
        failed = std::get<0>(written);
    }
    observe(reply, status);
    co_return !failed && reply.keep_alive;
}

asio::awaitable<bool> Session::send_stream(api::Response response, Reply reply) {
    if (reply.head) {
        co_return co_await send(std::move(response), std::move(reply));
    }
    const bool chunked = reply.version == 11;
    if (!chunked) {
        reply.keep_alive = false;  // HTTP/1.0: the end of the connection is the end of the body
    }
    {
        bhttp::response<bhttp::empty_body> message;
        set_head(message, response, reply.version, reply.keep_alive, reply.request_id);
        if (chunked) {
            message.chunked(true);
        }
        bhttp::response_serializer<bhttp::empty_body> serializer(message);
        stream_.expires_after(kTransferBase);
        const auto written = co_await bhttp::async_write_header(stream_, serializer, kTuple);
        observe(reply, response.status);
        if (std::get<0>(written)) {
            co_return false;
        }
    }

    const auto executor = co_await asio::this_coro::executor;
    const std::unique_ptr<api::BodyStream> body = std::move(response.stream);
    for (;;) {
        // Cut short without a last chunk: the client can tell.
        if (context_->stopping && Clock::now() >= context_->streams_end) {
            co_return false;
        }
        stream_.expires_never();
        phase_ = Phase::streaming;
        auto group =
            asio::experimental::make_parallel_group(asio::co_spawn(executor, body->next(), asio::deferred),
                                                    asio::co_spawn(executor, until_peer_leaves(true), asio::deferred));
        auto outcome = co_await group.async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
        auto& [order, failure, piece, watch_failure] = outcome;
        if (order[0] != 0) {
            co_return false;
        }
        if (failure) {
            try {
                std::rethrow_exception(failure);
            } catch (const std::exception& error) {
                log::error("http", reply.method + " " + reply.pattern + " (request " + reply.request_id +
                                       "): stream: " + error.what());
            }
            co_return false;
        }
        phase_ = Phase::answering;
        stream_.expires_after(transfer_deadline(piece ? piece->size() : 0));
        if (!piece) {
            if (!chunked) {
                co_return false;
            }
            const auto end = bhttp::make_chunk_last();
            const auto written = co_await asio::async_write(stream_, end, kTuple);
            co_return !std::get<0>(written) && reply.keep_alive;
        }
        if (piece->empty()) {
            continue;  // an empty chunk would end the body
        }
        error_code failed;
        if (chunked) {
            const auto chunk = bhttp::make_chunk(asio::buffer(*piece));
            const auto written = co_await asio::async_write(stream_, chunk, kTuple);
            failed = std::get<0>(written);
        } else {
            const auto bytes = asio::buffer(*piece);
            const auto written = co_await asio::async_write(stream_, bytes, kTuple);
            failed = std::get<0>(written);
        }
        if (failed) {
            co_return false;
        }
    }
}

asio::awaitable<void> Session::forever() {
    forever_.expires_at(Clock::time_point::max());
    co_await forever_.async_wait(kTuple);
}

/// Returns when the peer has closed its end or, streaming, the server stops and the streams' time is over. A peer that
/// sends on (pipelining) is there: its bytes stay in the socket, and from then on only a failed write tells that it
/// left.
asio::awaitable<void> Session::until_peer_leaves(bool streaming) {
    if (buffer_.size() == 0 && !context_->stopping) {
        const auto waited = co_await stream_.socket().async_wait(asio::ip::tcp::socket::wait_read, kTuple);
        if (std::get<0>(waited) && !context_->stopping) {
            co_return;
        }
        char byte = 0;
        const ssize_t got = ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
            co_return;
        }
    }
    if (!streaming || !context_->stopping) {
        co_await forever();
    }
    if (streaming && context_->stopping) {
        forever_.expires_at(context_->streams_end);
        co_await forever_.async_wait(kTuple);
    }
}

asio::awaitable<void> Session::close(bool linger) {
    error_code ec;
    stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ec);
    if (linger && !ec) {
        // Read what the peer still sends, for a moment: closing with unread bytes would reset the connection and take
        // the answer with it.
        stream_.expires_after(kLingerDeadline);
        std::size_t total = 0;
        while (total < kLingerLimit) {
            buffer_.clear();
            const auto space = buffer_.prepare(kFirstRead);
            const auto read = co_await stream_.async_read_some(space, kTuple);
            if (std::get<0>(read)) {
                break;
            }
            total += std::get<1>(read);
        }
    }
    stream_.close();
}

std::string Session::next_request_id() {
    std::array<char, 24> number{};
    std::snprintf(number.data(), number.size(), "%06llx", static_cast<unsigned long long>(++context_->requests));
    return context_->request_id_prefix + "-" + number.data();
}

void Session::observe(const Reply& reply, unsigned status) const {
    if (context_->observer) {
        context_->observer(reply.method, reply.pattern, status, Clock::now() - reply.started);
    }
}

}  // namespace distilld::http

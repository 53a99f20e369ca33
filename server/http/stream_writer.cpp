#include "server/http/stream_writer.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/system/error_code.hpp>
#include <exception>
#include <optional>
#include <utility>

#include "pipeline/async/abort.hpp"
#include "pipeline/async/deadline.hpp"
#include "pipeline/async/tuple.hpp"
#include "server/http/key_watch.hpp"
#include "server/http/peer_watch.hpp"
#include "server/support/log.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
namespace bhttp = boost::beast::http;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Piece = std::optional<std::string>;

bool streams_are_over(const SessionContext& context) {
    return context.stopping && Clock::now() >= context.streams_end;
}

asio::awaitable<void> until_streams_are_over(SessionContext& context) {
    while (!streams_are_over(context)) {
        auto wake = Condition::kNever;
        if (context.stopping) {
            wake = context.streams_end;
        }
        co_await context.stop_changed.wait(wake);
    }
}

asio::awaitable<void> until_either(asio::awaitable<void> one, asio::awaitable<void> other) {
    co_await run_until(std::move(one), std::move(other));
}

asio::awaitable<void> until_cut_off(Connection& connection, SessionContext& context,
                                    const std::optional<api::Caller>& caller) {
    auto watching = until_either(until_peer_leaves(connection), until_streams_are_over(context));
    if (caller) {
        watching = until_either(std::move(watching), until_revoked(context.options.doorkeeper, *caller));
    }
    return watching;
}

/// Nothing: cut off. An empty Piece: the body's end.
asio::awaitable<std::optional<Piece>> pull(Connection& connection, SessionContext& context, api::BodyStream& body,
                                           std::optional<api::Caller> caller) {
    connection.stream.expires_never();
    co_return co_await run_until(body.next(), until_cut_off(connection, context, caller));
}

asio::awaitable<error_code> write_piece(Connection& connection, std::string piece, bool chunked) {
    connection.allow_transfer(piece.size());
    const auto bytes = asio::buffer(piece);
    if (!chunked) {
        const auto written = co_await asio::async_write(connection.stream, bytes, kTuple);
        co_return std::get<0>(written);
    }
    const auto chunk = bhttp::make_chunk(bytes);
    const auto written = co_await asio::async_write(connection.stream, chunk, kTuple);
    co_return std::get<0>(written);
}

asio::awaitable<error_code> write_last_chunk(Connection& connection) {
    connection.allow_transfer(0);
    const auto end = bhttp::make_chunk_last();
    const auto written = co_await asio::async_write(connection.stream, end, kTuple);
    co_return std::get<0>(written);
}

}  // namespace

asio::awaitable<bool> write_stream(Connection& connection, SessionContext& context,
                                   std::unique_ptr<api::BodyStream> body, bool chunked,
                                   std::optional<api::Caller> caller, std::string label) {
    while (!streams_are_over(context)) {
        std::optional<Piece> piece;
        try {
            piece = co_await pull(connection, context, *body, caller);
        } catch (const std::exception& error) {
            if (!is_abort(std::current_exception())) {
                log::error("http", label + ": stream: " + error.what());
            }
            co_return false;
        }
        if (!piece) {
            co_return false;
        }
        if (!*piece) {
            if (!chunked) {
                co_return true;
            }
            const error_code failed = co_await write_last_chunk(connection);
            co_return !failed;
        }
        if ((*piece)->empty()) {
            continue;  // an empty chunk would end the body
        }
        const error_code failed = co_await write_piece(connection, std::move(**piece), chunked);
        if (failed) {
            co_return false;
        }
    }
    co_return false;
}

}  // namespace distilld::http

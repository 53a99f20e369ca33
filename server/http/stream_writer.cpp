#include "server/http/stream_writer.hpp"

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/system/error_code.hpp>
#include <cstdio>
#include <exception>
#include <optional>
#include <utility>

#include "pipeline/async/abort.hpp"
#include "pipeline/async/deadline.hpp"
#include "server/http/watches.hpp"
#include "server/support/log.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Piece = std::optional<std::string>;

bool streams_are_over(const SessionContext& context) {
    return context.stopping && Clock::now() >= context.streams_end;
}

asio::awaitable<void> until_either(asio::awaitable<void> one, asio::awaitable<void> other) {
    co_await run_until(std::move(one), std::move(other));
}

asio::awaitable<void> until_cut_off(Connection& connection, SessionContext& context,
                                    const std::optional<http::Caller>& caller) {
    auto watching = until_either(until_peer_leaves(connection), until_streams_are_over(context));
    if (caller) {
        watching = until_either(std::move(watching), until_revoked(context.options.authenticator, *caller));
    }
    return watching;
}

/// nullopt: cut off. An empty Piece: the end of the body.
asio::awaitable<std::optional<Piece>> pull(Connection& connection, SessionContext& context, http::BodyStream& body,
                                           std::optional<http::Caller> caller) {
    connection.stream.expires_never();
    co_return co_await run_until(body.next(), until_cut_off(connection, context, caller));
}

/// `frame` is written before the piece.
asio::awaitable<error_code> write_piece(Connection& connection, std::string frame, std::string piece) {
    connection.allow_transfer(piece.size());
    const auto written = co_await connection.stream.write(asio::buffer(frame), asio::buffer(piece));
    co_return written.failure;
}

asio::awaitable<error_code> write_chunk(Connection& connection, std::string piece) {
    std::array<char, 24> frame{};
    std::snprintf(frame.data(), frame.size(), "%zx\r\n", piece.size());
    piece += "\r\n";
    return write_piece(connection, frame.data(), std::move(piece));
}

}  // namespace

asio::awaitable<void> until_streams_are_over(SessionContext& context) {
    while (!streams_are_over(context)) {
        auto wake = Condition::kNever;
        if (context.stopping) {
            wake = context.streams_end;
        }
        co_await context.stop_changed.wait(wake);
    }
}

asio::awaitable<bool> write_stream(Connection& connection, SessionContext& context,
                                   std::unique_ptr<http::BodyStream> body, bool chunked,
                                   std::optional<http::Caller> caller, std::string label) {
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
            const error_code failed = co_await write_chunk(connection, std::string());
            co_return !failed;
        }
        if ((*piece)->empty()) {
            continue;  // an empty chunk would end the body
        }
        auto writing = chunked ? write_chunk(connection, std::move(**piece))
                               : write_piece(connection, std::string(), std::move(**piece));
        const error_code failed = co_await std::move(writing);
        if (failed) {
            co_return false;
        }
    }
    co_return false;
}

}  // namespace distilld::http

#include "server/http/http_server.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <set>
#include <utility>

#include "base/scope_exit.hpp"
#include "pipeline/async/abort.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/async/tuple.hpp"
#include "server/http/listen_address.hpp"
#include "server/http/session.hpp"
#include "server/http/session_context.hpp"
#include "server/support/failure_logger.hpp"
#include "server/support/log.hpp"
#include "server/support/rate_limit.hpp"

namespace distilld::http {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

using Clock = std::chrono::steady_clock;

/// Connections beyond max_connections that get one short answer each; further ones are closed without an answer.
constexpr std::size_t kMaxRefusals = 64;
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::seconds kCancelGrace{5};
/// The time for streams to announce the stop and to end by themselves.
constexpr std::chrono::milliseconds kStreamGrace{250};

}  // namespace

struct ServerState {
    ServerState(tcp::acceptor acceptor_in, std::shared_ptr<SessionContext> context_in)
        : acceptor(std::move(acceptor_in)), context(std::move(context_in)) {}

    void stop(std::chrono::seconds grace) {
        if (!context->stopping) {
            context->stopping = true;
            context->streams_end = Clock::now() + kStreamGrace;
            error_code ignored;
            acceptor.close(ignored);
        }
        for (Session* session : sessions) {
            session->stop();  // it ends later, not inside this call
        }
        deadline = Clock::now() + grace;
        context->stop_changed.notify();
    }

    tcp::acceptor acceptor;
    std::shared_ptr<SessionContext> context;
    Clock::time_point deadline;  ///< while stopping: sessions that still run then are cancelled
    std::set<Session*> sessions;
    RateLimit complaints{5, 0.1};  ///< about connections that could not be accepted
};

namespace {

/// Runs a session, which ServerState::stop() can reach meanwhile.
asio::awaitable<void> serve(std::shared_ptr<ServerState> state, tcp::socket socket,
                            asio::awaitable<void> (Session::*run)()) {
    Session session(std::move(socket), state->context);
    state->sessions.insert(&session);
    const ScopeExit ended([&] { state->sessions.erase(&session); });
    co_await (session.*run)();
}

/// Neither a lack of descriptors nor a peer that has already left may end the server. False: the server stops.
asio::awaitable<bool> pause_after(error_code failure, ServerState& state) {
    if (state.complaints.take(1, Clock::now())) {
        const auto more = state.complaints.take_refused();
        log::warn("http", "accept: " + failure.message() +
                              (more > 0 ? " (and " + std::to_string(more) + " more times before)" : std::string()));
    }
    const auto until = Clock::now() + kAcceptPause;
    try {
        co_await state.context->stop_changed.wait(until);
    } catch (const boost::system::system_error& error) {
        if (!is_abort(error.code())) {
            throw;
        }
        co_return false;
    }
    co_return true;
}

asio::awaitable<void> accept_loop(std::shared_ptr<ServerState> state, TaskGroup& sessions, TaskGroup& refusals) {
    while (!state->context->stopping) {
        auto accepted = co_await state->acceptor.async_accept(kTuple);
        const error_code ec = std::get<0>(accepted);
        if (state->context->stopping || is_abort(ec)) {
            break;
        }
        if (ec) {
            const bool go_on = co_await pause_after(ec, *state);
            if (!go_on) {
                break;
            }
            continue;
        }
        tcp::socket& socket = std::get<1>(accepted);
        if (sessions.size() < state->context->options.max_connections) {
            static_cast<void>(sessions.spawn(serve(state, std::move(socket), &Session::run)));
        } else {
            static_cast<void>(
                refusals.spawn(serve(state, std::move(socket), &Session::run_when_full)));  // or closed unanswered
        }
    }
}

asio::awaitable<void> cancel_at_deadline(std::shared_ptr<ServerState> state, TaskGroup& sessions, TaskGroup& refusals) {
    // Another stop() may set a new deadline.
    while (Clock::now() < state->deadline) {
        co_await state->context->stop_changed.wait(state->deadline);
    }
    sessions.cancel();
    refusals.cancel();
}

/// Waits until all sessions have ended, and cancels those that still run at the deadline.
asio::awaitable<void> drain(std::shared_ptr<ServerState> state, TaskGroup& sessions, TaskGroup& refusals) {
    TaskGroup watching(state->acceptor.get_executor());
    static_cast<void>(watching.spawn(cancel_at_deadline(state, sessions, refusals)));
    co_await sessions.join();
    co_await refusals.join();
    watching.cancel();
    co_await watching.join();
}

asio::awaitable<void> run_server(std::shared_ptr<ServerState> state) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const auto executor = state->acceptor.get_executor();
    TaskGroupOptions limits;
    limits.on_failure = failure_logger("http", "session");
    TaskGroup sessions(executor, limits);
    limits.max_tasks = kMaxRefusals;
    TaskGroup refusals(executor, limits);
    co_await accept_loop(state, sessions, refusals);
    if (!state->context->stopping) {
        state->stop(kCancelGrace);
    }
    // Ignore cancellation from here on: the sessions are ending, and this coroutine must wait for them.
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    co_await drain(state, sessions, refusals);
}

}  // namespace

Server::Server(std::shared_ptr<ServerState> state, std::string address)
    : state_(std::move(state)), address_(std::move(address)) {}

Server::~Server() {
    error_code ignored;
    state_->acceptor.close(ignored);
}

asio::awaitable<void> Server::run() {
    return run_server(state_);
}

void Server::stop(std::chrono::seconds grace) {
    state_->stop(grace);
}

Result<std::unique_ptr<Server>> make_server(asio::any_io_executor executor, ServerOptions options,
                                            std::vector<Route> routes, Observer observer) {
    const auto address = resolve_listen(options.listen);
    if (!address) {
        return address.error();
    }
    const std::string failed = "cannot listen on " + options.listen + ": ";
    const tcp::endpoint& endpoint = address->endpoint;
    auto origin_check = OriginCheck::make(address->host, endpoint.address(), options.hosts);
    if (!origin_check) {
        return origin_check.error();
    }
    error_code ec;
    tcp::acceptor acceptor(executor);
    acceptor.open(endpoint.protocol(), ec);
    if (!ec) {
        acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
    }
    if (!ec) {
        acceptor.bind(endpoint, ec);
    }
    if (!ec) {
        acceptor.listen(asio::socket_base::max_listen_connections, ec);
    }
    if (ec) {
        return io_error(failed + ec.message());
    }
    const tcp::endpoint bound = acceptor.local_endpoint(ec);
    if (ec) {
        return io_error(failed + ec.message());
    }
    const std::string host =
        bound.address().is_v6() ? "[" + bound.address().to_string() + "]" : bound.address().to_string();
    auto context = std::make_shared<SessionContext>(executor, std::move(options), std::move(*origin_check),
                                                    Router(std::move(routes)), std::move(observer));
    auto state = std::make_shared<ServerState>(std::move(acceptor), std::move(context));
    return std::make_unique<Server>(std::move(state), host + ":" + std::to_string(bound.port()));
}

}  // namespace distilld::http

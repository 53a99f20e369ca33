#include "server/http/http_server.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <cstdio>
#include <list>
#include <random>

#include "server/http/session.hpp"
#include "server/support/log.hpp"

namespace distilld::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
/// Refusals under way at once; beyond them a connection is closed without a word.
constexpr std::size_t kRefusalLimit = 64;
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::seconds kCancelGrace{5};
/// What streams get to say that the service stops and to end by themselves.
constexpr std::chrono::milliseconds kStreamGrace{250};

struct HostPort {
    std::string host;
    std::string port;
};

Result<HostPort> split_listen(const std::string& listen) {
    const std::string what = "'" + listen + "' is not ADDRESS:PORT";
    const std::size_t colon = listen.rfind(':');
    if (colon == std::string::npos) {
        return invalid_input(what);
    }
    HostPort parts{listen.substr(0, colon), listen.substr(colon + 1)};
    if (parts.host.size() > 2 && parts.host.front() == '[' && parts.host.back() == ']') {
        parts.host = parts.host.substr(1, parts.host.size() - 2);
    } else if (parts.host.find(':') != std::string::npos) {
        return invalid_input(what + " (an IPv6 address is written [ADDRESS]:PORT)");
    }
    unsigned number = 0;
    const char* end = parts.port.data() + parts.port.size();
    const auto parsed = std::from_chars(parts.port.data(), end, number);
    if (parts.host.empty() || parsed.ec != std::errc{} || parsed.ptr != end || number > 65535) {
        return invalid_input(what);
    }
    return parts;
}

std::string random_prefix() {
    std::random_device source;
    char text[16];
    std::snprintf(text, sizeof(text), "%08x", static_cast<unsigned>(source()));
    return text;
}

/// Outlives the Server while sessions end.
struct State {
    State(asio::any_io_executor executor_in, tcp::acceptor acceptor_in, std::shared_ptr<SessionContext> context_in)
        : executor(std::move(executor_in)),
          acceptor(std::move(acceptor_in)),
          context(std::move(context_in)),
          pause(executor),
          wake(executor, asio::steady_timer::time_point::max()) {}

    void stop(std::chrono::seconds after) {
        if (!context->stopping) {
            context->stopping = true;
            context->streams_end = asio::steady_timer::clock_type::now() + kStreamGrace;
            error_code ignored;
            acceptor.close(ignored);
            pause.cancel();
        }
        // Sessions leave the lists through the executor's queue, not in here.
        for (const auto& session : sessions) {
            session->stop();
        }
        for (const auto& session : refusals) {
            session->stop();
        }
        deadline = asio::steady_timer::clock_type::now() + after;
        wake.cancel();
    }

    asio::any_io_executor executor;
    tcp::acceptor acceptor;
    std::shared_ptr<SessionContext> context;
    asio::steady_timer pause;
    asio::steady_timer wake;  ///< what drain() waits on
    asio::steady_timer::time_point deadline;
    std::list<std::shared_ptr<Session>> sessions;
    std::list<std::shared_ptr<Session>> refusals;
};

using SessionList = std::list<std::shared_ptr<Session>>;

/// Runs a session as a task of its own that leaves `list` when it ends.
void spawn(const std::shared_ptr<State>& state, SessionList State::* list, const std::shared_ptr<Session>& session,
           asio::awaitable<void> task) {
    auto& sessions = (*state).*list;
    const auto position = sessions.insert(sessions.end(), session);
    auto ended = [state, list, position, session](const std::exception_ptr& failure) {
        ((*state).*list).erase(position);
        if (state->sessions.empty() && state->refusals.empty()) {
            state->wake.cancel();
        }
        if (!failure) {
            return;
        }
        try {
            std::rethrow_exception(failure);
        } catch (const boost::system::system_error& error) {
            if (error.code() != asio::error::operation_aborted) {
                log::error("http", std::string("session: ") + error.what());
            }
        } catch (const std::exception& error) {
            log::error("http", std::string("session: ") + error.what());
        }
    };
    asio::co_spawn(state->executor, std::move(task),
                   asio::bind_cancellation_slot(session->cancellation_slot(), std::move(ended)));
}

asio::awaitable<void> accept_loop(std::shared_ptr<State> state) {
    while (!state->context->stopping) {
        auto accepted = co_await state->acceptor.async_accept(kTuple);
        const error_code ec = std::get<0>(accepted);
        if (state->context->stopping || ec == asio::error::operation_aborted) {
            break;
        }
        if (ec) {
            // Out of descriptors, or the peer has gone already: neither may end the server.
            log::warn("http", "accept: " + ec.message());
            state->pause.expires_after(kAcceptPause);
            co_await state->pause.async_wait(kTuple);
            continue;
        }
        auto session = std::make_shared<Session>(std::move(std::get<1>(accepted)), state->context);
        if (state->sessions.size() < state->context->options.max_connections) {
            spawn(state, &State::sessions, session, session->run());
        } else if (state->refusals.size() < kRefusalLimit) {
            spawn(state, &State::refusals, session, session->refuse());
        }
    }
}

/// Waits until all sessions have ended; those that have not when the grace is over are cancelled.
asio::awaitable<void> drain(std::shared_ptr<State> state) {
    using Clock = asio::steady_timer::clock_type;
    bool over = false;
    while (!state->sessions.empty() || !state->refusals.empty()) {
        if (!over && state->deadline <= Clock::now()) {
            over = true;
            const SessionList sessions = state->sessions;  // ending changes the lists
            const SessionList refusals = state->refusals;
            for (const auto& session : sessions) {
                session->cancel();
            }
            for (const auto& session : refusals) {
                session->cancel();
            }
        }
        // Woken by the last session's end, and by another stop() with a deadline of its own.
        state->wake.expires_at(over ? Clock::time_point::max() : state->deadline);
        co_await state->wake.async_wait(kTuple);
    }
}

class BeastServer final : public Server {
  public:
    explicit BeastServer(std::shared_ptr<State> state, std::string address)
        : state_(std::move(state)), address_(std::move(address)) {}
    ~BeastServer() override {
        error_code ignored;
        state_->acceptor.close(ignored);
    }
    BeastServer(const BeastServer&) = delete;
    BeastServer& operator=(const BeastServer&) = delete;

    [[nodiscard]] std::string address() const override { return address_; }

    asio::awaitable<void> run() override { return run_server(state_); }

    void stop(std::chrono::seconds grace) override { state_->stop(grace); }

  private:
    static asio::awaitable<void> run_server(std::shared_ptr<State> state) {
        co_await asio::this_coro::throw_if_cancelled(false);
        co_await accept_loop(state);
        if (!state->context->stopping) {
            state->stop(kCancelGrace);
        }
        // From here on a cancellation changes nothing: the sessions are ending, and somebody must wait for them.
        co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
        co_await drain(state);
    }

    std::shared_ptr<State> state_;
    std::string address_;
};

}  // namespace

Result<std::unique_ptr<Server>> make_server(asio::any_io_executor executor, ServerOptions options,
                                            std::vector<Route> routes, Observer observer) {
    auto parts = split_listen(options.listen);
    if (!parts) {
        return parts.error();
    }
    const std::string failed = "cannot listen on " + options.listen + ": ";
    error_code ec;
    tcp::resolver resolver(executor);
    const auto found = resolver.resolve(parts->host, parts->port, tcp::resolver::passive, ec);
    if (ec) {
        return invalid_input(failed + ec.message());
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
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

    auto context = std::make_shared<SessionContext>(SessionContext{
        std::move(options), Router(std::move(routes)), std::move(observer), false, {}, random_prefix(), 0});
    auto state = std::make_shared<State>(std::move(executor), std::move(acceptor), std::move(context));
    return std::unique_ptr<Server>(
        std::make_unique<BeastServer>(std::move(state), host + ":" + std::to_string(bound.port())));
}

}  // namespace distilld::http

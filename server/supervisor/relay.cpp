#include "server/supervisor/relay.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>

#include "api/job_spec_json.hpp"
#include "net/host_resolver.hpp"
#include "net/http_connector.hpp"
#include "pipeline/async/condition.hpp"
#include "pipeline/async/deadline.hpp"
#include "pipeline/async/failure_message.hpp"
#include "pipeline/async/task_group.hpp"
#include "server/protocol/numbered_link.hpp"
#include "server/protocol/relay_messages.hpp"
#include "server/supervisor/remote_attempts.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kConnectDeadline{30};

/// Only the service itself says so: a proxy before it may answer with any status.
bool is_unknown(const WebSocket::Opened& answer) {
    return answer.status == 401 &&
           answer.challenge.find("error=\"" + std::string(kUnknownAttempt) + "\"") != std::string::npos;
}

}  // namespace

struct Relay::State {
    State(asio::any_io_executor executor, RelayOptions options_in)
        : options(std::move(options_in)),
          changed(std::move(executor)),
          resolver(changed.get_executor()),
          connector(changed.get_executor(), resolver, options.service, options.tls, std::make_shared<TrafficCounters>(),
                    kConnectDeadline),
          work(changed.get_executor()) {}

    void push(const FromRelay& message, ResendQueue::Keep keep = ResendQueue::Keep::always) {
        link.push(encode_message<kFromRelay>(message), keep);
        changed.notify();
    }

    void push_event(const WorkerEvent& event) {
        const auto keep =
            std::holds_alternative<ProgressEvent>(event) ? ResendQueue::Keep::newest : ResendQueue::Keep::always;
        std::visit([&](const auto& one) { push(FromRelay(one), keep); }, event);
    }

    void push_output(const std::string& line) {
        const auto dropped = link.dropped();
        push(OutputMessage{line}, ResendQueue::Keep::bounded);
        if (dropped > told_dropped && link.dropped() == dropped) {
            push(OutputMessage{std::to_string(dropped - std::exchange(told_dropped, dropped)) +
                               " lines before these are missing: too many came while the service was not reached"});
        }
    }

    /// One line per trouble, not per try.
    void complain(const std::string& what) {
        if (std::exchange(trouble, what) != what) {
            options.say(what);
        }
    }

    void lose_connection(const std::string& why) {
        complain("the connection to " + options.service.name + " ended: " + why);
    }

    void order(ToRelay message) {
        std::visit(
            [this](auto&& one) {
                using One = std::decay_t<decltype(one)>;
                if constexpr (std::is_same_v<One, WorkerStart>) {
                    if (!start) {
                        start = std::forward<decltype(one)>(one);
                    }
                } else if (worker && std::is_same_v<One, KillMessage>) {
                    worker->kill();
                } else if constexpr (!std::is_same_v<One, KillMessage>) {
                    if (worker) {
                        worker->send(one);
                    } else {
                        early.emplace_back(one);
                    }
                }
            },
            std::move(message));
        changed.notify();
    }

    /// The service wants nothing more from this attempt.
    void end(const std::string& why) {
        if (!std::exchange(over, true)) {
            options.say(why);
            running.cancel();
            changed.notify();
        }
    }

    RelayOptions options;
    Condition changed;
    HostResolver resolver;
    HttpConnector connector;
    NumberedLink link{{}, 0, 0};
    std::optional<WorkerStart> start;
    std::vector<WorkerCommand> early;  ///< orders from before the worker
    std::unique_ptr<WorkerProcess> worker;
    TaskGroup work;
    TaskHandle running;  ///< the worker's run
    std::string trouble;
    std::uint64_t told_dropped = 0;
    int stops = 0;
    bool ended = false;  ///< the worker has, and all that it said is in the link
    bool over = false;   ///< see end()
};

namespace {

/// Returns when the connection has ended.
asio::awaitable<void> read_orders(std::shared_ptr<Relay::State> state, WebSocket& socket) {
    for (;;) {
        auto message = co_await socket.read();
        if (message.closed && message.closed->code == kAttemptOver) {
            state->end("the service says that the attempt is over");
            co_return;
        }
        if (message.closed || message.failure) {
            state->lose_connection(message.closed ? message.closed->reason : message.failure.message());
            co_return;
        }
        auto taken = state->link.take(message.text);
        if (!taken) {
            state->complain(taken.error().message);
            co_return;
        }
        state->changed.notify();
        if (!taken->line) {
            continue;
        }
        state->link.confirm(state->link.received());
        auto decoded = decode_message<kToRelay>(*taken->line);
        if (!decoded) {
            state->complain(decoded.error().message);
            continue;
        }
        state->order(*std::move(decoded));
    }
}

asio::awaitable<void> write_events(std::shared_ptr<Relay::State> state, WebSocket& socket) {
    for (;;) {
        while (auto frame = state->link.next()) {
            const auto failed = co_await socket.write(*std::move(frame));
            if (failed) {
                state->lose_connection(failed.message());
                co_return;
            }
        }
        co_await state->changed.wait();
    }
}

asio::awaitable<void> await_over(std::shared_ptr<Relay::State> state) {
    while (!state->over) {
        co_await state->changed.wait();
    }
}

asio::awaitable<void> pass_frames(std::shared_ptr<Relay::State> state, WebSocket& socket) {
    co_await run_until(read_orders(state, socket), write_events(state, socket));
}

struct Dialled {
    std::unique_ptr<ByteStream> stream;
    std::unique_ptr<WebSocket> socket;  // uses the stream
};

asio::awaitable<Result<std::shared_ptr<WebSocket>>> dial(std::shared_ptr<Relay::State> state) {
    auto opened = co_await state->connector.open();
    if (!opened) {
        co_return io_error(opened.error().message);
    }
    const auto dialled = std::make_shared<Dialled>();
    dialled->stream = *std::move(opened);
    WebSocketLimits limits;
    limits.message_bytes = kLinkFrameLimit;
    dialled->socket = make_web_socket(*dialled->stream, limits);
    co_return std::shared_ptr<WebSocket>(dialled, dialled->socket.get());
}

/// One connection, from dialling to its end. True: it lasted.
asio::awaitable<bool> connect_once(std::shared_ptr<Relay::State> state) {
    const EndpointUrl& service = state->options.service;
    auto dialling = state->options.dial ? state->options.dial() : dial(state);
    const auto opened = co_await with_deadline(std::move(dialling), kConnectDeadline);
    if (!opened || !*opened) {
        state->complain(opened ? opened->error().message : service.name + ": no connection within 30 s");
        co_return false;
    }
    const std::shared_ptr<WebSocket> socket = **opened;
    const auto answer =
        co_await socket->open(service.host_header, service.target(), state->options.token, state->options.user_agent);
    if (answer.failure) {
        if (is_unknown(answer)) {
            state->end(service.name + " does not know this attempt (any more)");
        } else {
            state->complain(service.name + ": " +
                            (answer.status != 0 ? "HTTP " + std::to_string(answer.status) : answer.failure.message()));
        }
        co_return false;
    }
    state->link.connect();
    state->trouble.clear();
    const auto before = Clock::now();
    co_await run_until(pass_frames(state, *socket), await_over(state));
    co_return Clock::now() - before > state->options.max_pause;
}

/// Until it is cancelled, or the attempt is over.
asio::awaitable<void> keep_connected(std::shared_ptr<Relay::State> state) {
    auto pause = state->options.min_pause;
    while (!state->over) {
        const bool lasted = co_await connect_once(state);
        if (state->over) {
            co_return;
        }
        pause = lasted ? state->options.min_pause : pause;
        const auto until = Clock::now() + pause;
        while (Clock::now() < until && !state->over) {
            co_await state->changed.wait(until);
        }
        pause = std::min(2 * pause, state->options.max_pause);
    }
}

asio::awaitable<void> run_worker(std::shared_ptr<Relay::State> state) {
    EndMessage end;
    const WorkerProcess::EventHandler on_event = [&state](const WorkerEvent& event) { state->push_event(event); };
    try {
        const auto exit = co_await state->worker->run(*state->start, on_event);
        if (exit) {
            end.exit_code = exit->exit_code;
            end.stderr_tail = exit->stderr_tail;
        } else {
            end.error = exit.error().message;
        }
    } catch (...) {
        end.error = failure_message(std::current_exception());
    }
    state->push(std::move(end));
    state->ended = true;
    state->changed.notify();
}

/// False: it took too long.
template <class Done>
asio::awaitable<bool> await_until(std::shared_ptr<Relay::State> state, Done done, Clock::time_point until) {
    while (!done(*state)) {
        if (Clock::now() >= until) {
            co_return false;
        }
        co_await state->changed.wait(until);
    }
    co_return true;
}

void begin_worker(const std::shared_ptr<Relay::State>& state) {
    if (auto spec = api::parse_job_spec(state->start->spec_json)) {
        state->start->spec = std::make_shared<const JobSpec>(*std::move(spec));
    }
    auto made = state->options.make_worker(
        state->start->spec.get(), [state = state.get()](const std::string& line) { state->push_output(line); });
    if (!made) {
        state->push(EndMessage{1, {}, made.error().message});
        state->ended = true;
        return;
    }
    state->worker = *std::move(made);
    for (const auto& command : std::exchange(state->early, {})) {
        state->worker->send(command);
    }
    state->running = state->work.spawn(run_worker(state));
}

asio::awaitable<Result<void>> run_relay(std::shared_ptr<Relay::State> state) {
    TaskGroup connecting(state->changed.get_executor());
    static_cast<void>(connecting.spawn(keep_connected(state)));
    const auto limit = state->options.patience;
    const auto has_order = [](const Relay::State& now) { return now.start || now.over || now.stops > 0; };
    const bool ordered = co_await await_until(state, has_order, Clock::now() + limit);
    Result<void> outcome;
    if (!ordered) {
        outcome = io_error(state->options.service.name + " gave no order within " + std::to_string(limit.count()) +
                           " s: " + state->trouble);
    } else if (state->start && !state->over && state->stops == 0) {
        begin_worker(state);
        const auto has_ended = [](const Relay::State& now) { return now.ended; };
        co_await await_until(state, has_ended, Condition::kNever);
        const auto is_known = [](const Relay::State& now) { return now.over; };
        const bool known = co_await await_until(state, is_known, Clock::now() + limit);
        if (!known) {
            outcome = io_error(std::to_string(state->link.undelivered()) + " messages of the worker did not reach " +
                               state->options.service.name + " within " + std::to_string(limit.count()) +
                               " s of its end: " + state->trouble);
        }
    }
    connecting.cancel();
    co_await connecting.join();
    co_await state->work.join();
    co_return outcome;
}

}  // namespace

Relay::Relay(asio::any_io_executor executor, RelayOptions options)
    : state_(std::make_shared<State>(std::move(executor), std::move(options))) {}

Relay::~Relay() = default;

asio::awaitable<Result<void>> Relay::run() {
    return run_relay(state_);
}

void Relay::stop() {
    if (++state_->stops == 1) {
        if (state_->worker) {
            state_->push(LogEvent{"warn", "the worker's machine asks it to end (SIGTERM): it writes a checkpoint"});
        }
        state_->running.cancel();
    } else if (state_->worker) {
        state_->worker->kill();
    }
    state_->changed.notify();
}

}  // namespace distilld

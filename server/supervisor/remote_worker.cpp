#include "server/supervisor/remote_worker.hpp"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/hex.hpp"
#include "base/sha256.hpp"
#include "base/unix_time.hpp"
#include "base/utf8.hpp"
#include "pipeline/async/condition.hpp"
#include "pipeline/async/task_group.hpp"
#include "server/protocol/numbered_link.hpp"
#include "server/protocol/relay_messages.hpp"
#include "server/supervisor/worker_environment.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSavePause{1};

std::string new_token() {
    std::array<std::byte, 32> bytes{};
    if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
        throw std::runtime_error("the kernel has no random numbers for a token");
    }
    return "dt_" + hex(bytes);
}

/// The state of a worker, which connections of its relay may still hold when it is gone.
class RemoteRun final : public AttemptPort {
  public:
    RemoteRun(asio::any_io_executor executor, RemoteAttempts& attempts_in, RemoteWorkerOptions options_in)
        : options(std::move(options_in)),
          attempts(attempts_in),
          changed(std::move(executor)),
          token_hash(options.record->stored().token_hash),
          link(options.attempt, options.record->saved(),
               options.adopted ? std::nullopt : std::optional<std::uint64_t>(0)) {}

    [[nodiscard]] asio::any_io_executor executor() const override { return changed.get_executor(); }

    std::uint64_t connect() override {
        attempts.update([this](LinkCounts& counts) {
            ++counts.connections;
            counts.reconnects += connection > 0 || options.adopted ? 1 : 0;
            counts.connected += connected ? 0 : 1;
        });
        ++connection;
        connected = true;
        take_wait({});
        link.connect();
        changed.notify();
        return connection;
    }

    std::optional<WebSocketClose> take(std::uint64_t from, std::string frame) override {
        if (over) {
            return WebSocketClose{kAttemptOver, "the attempt is over"};
        }
        if (from != connection) {
            return WebSocketClose{kConnectionReplaced, "a newer connection replaces this one"};
        }
        auto taken = link.take(frame);
        if (!taken) {
            disconnect(from);
            return WebSocketClose{kLinkBroken, taken.error().message};
        }
        if (taken->line && !done) {
            take_line(*taken->line);
        }
        count_messages();
        changed.notify();
        return std::nullopt;
    }

    asio::awaitable<WebSocketMessage> next(std::uint64_t from) override {
        for (;;) {
            WebSocketMessage message;
            if (over) {
                message.closed = WebSocketClose{kAttemptOver, "the attempt is over"};
                co_return message;
            }
            if (from != connection) {
                message.closed = WebSocketClose{kConnectionReplaced, "a newer connection replaces this one"};
                co_return message;
            }
            if (auto frame = link.next()) {
                message.text = *std::move(frame);
                co_return message;
            }
            co_await changed.wait();
        }
    }

    void disconnect(std::uint64_t from) override {
        if (from == connection && connected) {
            connected = false;
            attempts.update([](LinkCounts& counts) { --counts.connected; });
            changed.notify();
        }
    }

    /// `why`: the place is not there yet; empty: it is.
    void take_wait(const std::string& why) {
        const bool there = why.empty() || connection > 0;
        if (done || last_event || !on_event || (there && !waits_since)) {
            return;
        }
        waits_since = waits_since.value_or(unix_now());
        deliver(there ? WaitingEvent{"", "the cluster has started the worker", 0}
                      : WaitingEvent{"cluster_queue", why, *waits_since});
        if (there) {
            waits_since.reset();
        }
    }

    void push(const ToRelay& message) {
        link.push(encode_message<kToRelay>(message));
        count_messages();
        changed.notify();
    }

    /// Ends the worker. `why` becomes the run's failure unless its own end is known.
    void abort(std::string why) {
        if (failure.empty()) {
            failure = std::move(why);
        }
        if (!kill_by) {
            kill_by = Clock::now() + options.kill_grace;
            push(KillMessage{});
            options.place->cancel();
        }
    }

    /// The relay may forget what is on disk.
    void confirm() {
        link.confirm(options.record->saved());
        changed.notify();
    }

    /// That the relay has not acknowledged.
    void count_messages() {
        const std::size_t now = done ? 0 : link.undelivered();
        attempts.update(
            [this, now](LinkCounts& counts) { counts.unacknowledged += now - std::exchange(counted, now); });
    }

    [[nodiscard]] bool begun() const { return options.adopted || link.acknowledged() > 0 || link.received() > 0; }

    RemoteWorkerOptions options;
    RemoteAttempts& attempts;
    WorkerProcess::EventHandler on_event;
    Condition changed;
    std::string token_hash;
    NumberedLink link;
    std::uint64_t connection = 0;  ///< number of the newest one
    bool connected = false;
    bool used = false;
    bool killed = false;  ///< on request
    bool asked = false;   ///< to end
    bool done = false;    ///< run() has returned
    bool over = false;    ///< the relay is told to end
    std::string failure;  ///< why we ended it
    std::exception_ptr handler_failure;
    std::optional<WorkerEvent> last_event;  ///< held back until the relay has said the rest
    std::optional<EndMessage> end;
    std::optional<PlaceEnd> gone;  ///< what the launcher says about the end of the place
    Clock::time_point gone_at;
    std::optional<Clock::time_point> kill_by;
    std::size_t counted = 0;            ///< messages in the counts of `attempts`
    std::optional<double> waits_since;  ///< Unix time; nullopt: the place is there

  private:
    void take_line(const std::string& line) {
        auto message = decode_message<kFromRelay>(to_valid_utf8(line));
        if (!message) {
            abort(message.error().message);
            return;
        }
        std::visit([this](auto&& content) { on(std::forward<decltype(content)>(content)); }, *std::move(message));
    }

    void deliver(const WorkerEvent& event) {
        try {
            on_event(event);
        } catch (...) {
            handler_failure = std::current_exception();
            abort("the event handler failed");
        }
    }

    void on(OutputMessage message) {
        if (options.output) {
            options.output(message.line);
        }
        if (!last_event) {
            options.record->begin_message(link.received());
            options.record->end_message();
        }
    }
    void on(EndMessage message) { end = std::move(message); }
    template <class Event>
    void on(Event event) {
        if (last_event || end) {
            return;  // nothing may follow
        }
        if (ends_run(event)) {
            last_event = std::move(event);
            return;
        }
        options.record->begin_message(link.received());
        deliver(event);
        options.record->end_message();
        link.confirm(options.record->saved());
    }
};

asio::awaitable<void> await_place(std::shared_ptr<RemoteRun> run) {
    run->gone = co_await run->options.place->ended();
    run->gone_at = Clock::now();
    run->changed.notify();
}

/// Returns when there is nothing more to wait for.
asio::awaitable<void> await_end(std::shared_ptr<RemoteRun> run) {
    auto tried = Clock::now();
    while (!run->end && !run->handler_failure) {
        const auto now = Clock::now();
        auto wake = Condition::kNever;
        if (run->gone) {
            wake = run->gone_at + run->options.gone_grace;
            if (!run->connected || now >= wake) {
                co_return;
            }
        }
        if (run->kill_by) {
            wake = std::min(wake, *run->kill_by);
            if (now >= *run->kill_by) {
                co_return;
            }
        }
        if (run->options.record->saved() < run->link.received() && !run->last_event) {
            if (now >= tried + kSavePause) {
                tried = now;
                run->options.record->save();
                run->confirm();
            }
            wake = std::min(wake, tried + kSavePause);
        }
        co_await run->changed.wait(wake);
    }
}

FailedEvent failed_event(const RemoteRun& run) {
    if (run.killed) {
        return FailedEvent{to_string(ErrorKind::internal), run.failure};
    }
    if (!run.failure.empty()) {
        return FailedEvent{kWorkerKilled, run.failure};
    }
    const PlaceEnd end = run.gone.value_or(PlaceEnd{kWorkerKilled, "the worker's place is gone"});
    return FailedEvent{run.begun() || end.kind == kWorkerCancelled ? end.kind : kWorkerNotStarted, end.words};
}

/// After the worker's end. If the service has not asked for it, the place knows whether somebody has cancelled the job,
/// or only wants its machine.
asio::awaitable<void> learn_who_ended_it(std::shared_ptr<RemoteRun> run) {
    if (!run->last_event || !std::holds_alternative<CancelledEvent>(*run->last_event) || run->asked || run->killed) {
        co_return;
    }
    run->over = true;  // the relay may go: the checkpoint is written
    run->changed.notify();
    const auto until = Clock::now() + run->options.kill_grace;
    while (!run->gone && Clock::now() < until) {
        co_await run->changed.wait(until);
    }
    if (run->gone && run->gone->kind == kWorkerCancelled) {
        run->last_event = failed_event(*run);
    }
}

/// The last event, if there is one, is stored together with what becomes of the job.
Result<WorkerExit> conclude_remote(RemoteRun& run) {
    WorkerExit exit;
    if (run.end) {
        exit = {run.end->exit_code, run.end->stderr_tail};
        if (!run.last_event && !run.end->error.empty()) {
            return io_error(run.end->error);
        }
    }
    run.options.record->begin_message(run.link.received());
    run.on_event(run.last_event ? *run.last_event : WorkerEvent(failed_event(run)));
    return exit;
}

/// An error: it cannot be begun.
asio::awaitable<Result<void>> begin_place(std::shared_ptr<RemoteRun> run, RemoteAttempts& attempts) {
    RelayOrder order{run->options.attempt, new_token()};
    run->token_hash = sha256_text(order.token);
    if (!run->options.record->set_token(run->token_hash)) {
        co_return io_error("the job store cannot be written, so no worker is started");
    }
    attempts.add(run->token_hash, run);  // the relay may be faster than the answer
    auto begun = co_await run->options.place->begin(std::move(order));
    if (!begun) {
        co_return begun.error();
    }
    // If this is lost, the relay is still known by its token.
    static_cast<void>(run->options.record->set_place(*std::move(begun)));
    if (run->kill_by) {
        run->options.place->cancel();  // it could not before
    }
    co_return Result<void>();
}

asio::awaitable<Result<WorkerExit>> run_remote(std::shared_ptr<RemoteRun> run, RemoteAttempts& attempts,
                                               WorkerStart start, WorkerProcess::EventHandler on_event) {
    if (std::exchange(run->used, true)) {
        throw std::logic_error("WorkerProcess::run() called twice");
    }
    run->on_event = std::move(on_event);
    if (run->killed) {  // before it started
        run->done = true;
        run->on_event(failed_event(*run));
        co_return WorkerExit{128 + SIGKILL, {}};
    }
    start.keys = keys_of_job(start.spec.get());
    run->push(std::move(start));  // a relay that has it ignores it
    if (!run->options.adopted) {
        const auto begun = co_await begin_place(run, attempts);
        if (!begun) {
            run->done = true;
            co_return begun.error();
        }
    }
    run->options.place->tell_of_waits([run = run.get()](const std::string& why) { run->take_wait(why); });
    TaskGroup tasks(run->executor());
    static_cast<void>(tasks.spawn(await_place(run)));
    co_await await_end(run);
    co_await learn_who_ended_it(run);
    tasks.cancel();
    co_await tasks.join();
    run->done = true;
    if (run->handler_failure) {
        std::rethrow_exception(run->handler_failure);
    }
    co_return conclude_remote(*run);
}

class RemoteWorker final : public WorkerProcess {
  public:
    RemoteWorker(asio::any_io_executor executor, RemoteAttempts& attempts, RemoteWorkerOptions options)
        : attempts_(attempts), run_(std::make_shared<RemoteRun>(std::move(executor), attempts, std::move(options))) {
        if (run_->options.adopted) {
            attempts_.add(run_->token_hash, run_);
        }
    }
    ~RemoteWorker() override {
        attempts_.remove(run_->token_hash);
        if (run_->done) {
            run_->options.place->forget();
            run_->count_messages();
            run_->over = true;
            run_->changed.notify();
        }
    }
    RemoteWorker(const RemoteWorker&) = delete;
    RemoteWorker& operator=(const RemoteWorker&) = delete;

    asio::awaitable<Result<WorkerExit>> run(WorkerStart start, EventHandler on_event) override {
        return run_remote(run_, attempts_, std::move(start), std::move(on_event));
    }

    void send(const WorkerCommand& command) override {
        run_->asked = run_->asked || std::holds_alternative<CancelCommand>(command);
        if (!run_->done) {
            std::visit([this](const auto& order) { run_->push(order); }, command);
        }
    }

    void kill() override {
        run_->killed = true;
        if (run_->used) {
            run_->abort("the worker was killed on request");
        } else {
            run_->failure = "the worker was killed on request";
        }
    }

  private:
    RemoteAttempts& attempts_;
    std::shared_ptr<RemoteRun> run_;
};

}  // namespace

std::unique_ptr<WorkerProcess> make_remote_worker(asio::any_io_executor executor, RemoteAttempts& attempts,
                                                  RemoteWorkerOptions options) {
    return std::make_unique<RemoteWorker>(std::move(executor), attempts, std::move(options));
}

}  // namespace distilld

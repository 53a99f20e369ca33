#include "server/supervisor/worker_supervision.hpp"

#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <csignal>
#include <string>
#include <utility>

#include "pipeline/async/abort.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr auto kNever = Condition::kNever;
/// How long processes that the child left behind may hold its pipes after its end.
constexpr std::chrono::seconds kAfterExit{2};

class Supervision {
  public:
    explicit Supervision(WorkerRun& run)
        : run_(run), grace_(run.options.stop_grace), hello_by_(Clock::now() + run.options.hello_timeout) {}

    [[nodiscard]] bool over() const { return !run_.reading_messages && !run_.reading_output && !run_.awaiting_exit; }

    void cancel(Clock::time_point now) {
        if (std::exchange(cancelling_, true)) {
            return;
        }
        if (run_.started) {
            run_.send(CancelCommand{});
            terminate_at_ = now + grace_ * 3 / 4;
            kill_at_ = std::min(kill_at_, now + grace_);
        } else if (run_.failure.empty()) {
            run_.unwanted = true;  // it has not begun
            run_.send_signal(SIGKILL);
        }
    }

    /// Acts on the deadlines that have passed.
    void enforce(Clock::time_point now) {
        if (run_.status) {
            close_pipes(now);
            return;
        }
        if (!run_.started && now >= hello_by_) {
            run_.abort("the worker (" + run_.options.program.string() + ") did not report within " +
                       std::to_string(run_.options.hello_timeout.count()) + " s");
        }
        // After its last event, or once its end of the channel is closed, the child must exit.
        if (run_.last_event || !run_.reading_messages) {
            kill_at_ = std::min(kill_at_, now + grace_);
        }
        if (now >= terminate_at_) {
            terminate_at_ = kNever;
            run_.send_signal(SIGTERM);
        }
        if (now >= kill_at_) {
            kill_at_ = kNever;
            run_.abort("the worker did not end within " + std::to_string(grace_.count()) +
                       " s of being asked to and was killed");
        }
    }

    [[nodiscard]] Clock::time_point next(Clock::time_point now) const {
        auto next = std::min({terminate_at_, kill_at_, close_at_});
        if (!run_.started && !run_.status) {
            next = std::min(next, hello_by_);
        }
        return next <= now ? kNever : next;
    }

  private:
    void close_pipes(Clock::time_point now) {
        if (close_at_ == kNever) {
            close_at_ = now + kAfterExit;
        } else if (now >= close_at_) {
            run_.lines->close();
            run_.output.close();
        }
    }

    WorkerRun& run_;
    std::chrono::seconds grace_;
    Clock::time_point hello_by_;
    Clock::time_point terminate_at_ = kNever;
    Clock::time_point kill_at_ = kNever;
    Clock::time_point close_at_ = kNever;
    bool cancelling_ = false;
};

}  // namespace

asio::awaitable<void> supervise(std::shared_ptr<WorkerRun> run) {
    co_await asio::this_coro::throw_if_cancelled(false);
    Supervision supervision(*run);
    while (!supervision.over()) {
        const auto now = Clock::now();
        const auto state = co_await asio::this_coro::cancellation_state;
        if (state.cancelled() != asio::cancellation_type::none) {
            supervision.cancel(now);
        }
        supervision.enforce(now);
        const auto wake = supervision.next(now);
        try {
            co_await run->changed.wait(wake);
        } catch (const boost::system::system_error& error) {
            if (!is_abort(error.code())) {
                throw;
            }
            // the next iteration handles the cancellation
        }
    }
}

}  // namespace distilld

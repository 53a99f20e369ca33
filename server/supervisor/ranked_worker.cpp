#include "server/supervisor/ranked_worker.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/job_spec.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/async/tuple.hpp"
#include "pipeline/core/ranks/rank_place.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

/// For the other ranks to end by themselves when one has ended; the longer one if they may not know yet.
constexpr std::chrono::seconds kGrace{20};
constexpr std::chrono::seconds kShortGrace{5};

/// A port of this machine, at `host`, that the kernel gives to nobody else while this lives. Whoever listens with
/// SO_REUSEADDR may take it.
class HeldPort {
  public:
    HeldPort(const asio::any_io_executor& executor, const std::string& host) : socket_(executor) {
        boost::system::error_code is_name;
        const auto address = asio::ip::make_address(host, is_name);
        const auto family = !is_name && address.is_v6() ? tcp::v6() : tcp::v4();
        socket_.open(family);
        socket_.set_option(tcp::socket::reuse_address(true));
        socket_.bind(is_name || !address.is_loopback() ? tcp::endpoint(family, 0) : tcp::endpoint(address, 0));
    }
    [[nodiscard]] std::uint16_t number() const { return socket_.local_endpoint().port(); }

  private:
    tcp::socket socket_;
};

struct Ranks {
    Ranks(const asio::any_io_executor& executor_in, RankFactory make_worker_in, RankLayout layout_in)
        : executor(executor_in), make_worker(std::move(make_worker_in)), layout(std::move(layout_in)), grace(executor) {
        workers.push_back(make_worker(0));  // of rank 0: commands may come before run()
    }

    /// Rank 0 stops and writes for all; limits are divided, so each must know.
    void send(const WorkerCommand& command) {
        workers.front()->send(command);
        if (const auto* given = std::get_if<SetLimitCommand>(&command)) {
            limit = *given;
            for (std::size_t rank = 1; rank < workers.size(); ++rank) {
                workers[rank]->send(command);
            }
        }
    }

    void kill() {
        killed = true;
        for (const auto& worker : workers) {
            worker->kill();
        }
    }

    asio::any_io_executor executor;
    RankFactory make_worker;
    RankLayout layout;
    std::vector<std::unique_ptr<WorkerProcess>> workers;  ///< by rank
    std::optional<FailedEvent> cause;                     ///< of the rank that failed first
    std::optional<WorkerEvent> last;                      ///< of rank 0
    std::optional<SetLimitCommand> limit;                 ///< the newest
    asio::steady_timer grace;
    bool ending = false;  ///< a rank has ended
    bool killed = false;
};

std::string said_by(const Ranks& ranks, std::uint32_t rank, const std::string& message) {
    return name_of_rank(rank, static_cast<std::uint32_t>(ranks.workers.size())) + ": " + message;
}

/// Passes the events of rank 0 on, but for its last one, and warnings of the others.
void take(Ranks& ranks, std::uint32_t rank, const WorkerEvent& event, const WorkerProcess::EventHandler& on_event) {
    // That a rank was lost is the consequence of what it says itself, or the supervisor of it.
    const auto* failed = std::get_if<FailedEvent>(&event);
    const bool replaces = ranks.cause && ranks.cause->kind == kRankLost && !ranks.killed;
    if (failed != nullptr && (!ranks.cause || (replaces && failed->kind != kRankLost))) {
        ranks.cause = *failed;
        if (failed->kind != kRankLost) {  // which names the other one
            ranks.cause->message = said_by(ranks, rank, failed->message);
        }
    }
    if (rank == 0 && ends_run(event)) {
        ranks.last = event;
    } else if (rank == 0) {
        on_event(event);
    } else if (const auto* line = std::get_if<LogEvent>(&event); line != nullptr && line->level != "info") {
        on_event(LogEvent{line->level, said_by(ranks, rank, line->message)});
    }
}

/// Kills what is left when the grace is over.
asio::awaitable<void> end_others(std::shared_ptr<Ranks> ranks) {
    ranks->grace.expires_after(ranks->cause && ranks->cause->kind == kRankLost ? kShortGrace : kGrace);
    const auto [failure] = co_await ranks->grace.async_wait(kTuple);
    if (!failure) {
        ranks->kill();
    }
}

asio::awaitable<void> run_rank(std::shared_ptr<Ranks> ranks, std::uint32_t rank, WorkerStart start,
                               WorkerProcess::EventHandler on_event, TaskGroup& tasks,
                               std::optional<Result<WorkerExit>>& exit) {
    const WorkerProcess::EventHandler events = [&](const WorkerEvent& event) { take(*ranks, rank, event, on_event); };
    Result<WorkerExit> ended = co_await ranks->workers[rank]->run(std::move(start), events);
    if (!ended && !ranks->cause) {
        ranks->cause = FailedEvent{to_string(ended.error().kind), ended.error().message};
    }
    if (rank == 0) {
        exit = std::move(ended);
    }
    if (!std::exchange(ranks->ending, true)) {
        static_cast<void>(tasks.spawn(end_others(ranks)));
    }
}

asio::awaitable<Result<WorkerExit>> run_all(std::shared_ptr<Ranks> ranks, WorkerStart start,
                                            WorkerProcess::EventHandler on_event, std::uint32_t count) {
    co_await asio::this_coro::throw_if_cancelled(false);
    const HeldPort port(ranks->executor, ranks->layout.host);
    const std::uint32_t per_machine = ranks->layout.per_machine == 0 ? count : ranks->layout.per_machine;
    for (std::uint32_t rank = 1; rank < count; ++rank) {
        ranks->workers.push_back(ranks->make_worker(rank));
        if (ranks->limit) {
            ranks->workers.back()->send(*ranks->limit);
        }
    }
    std::optional<Result<WorkerExit>> exit;
    TaskGroup others(ranks->executor);
    for (std::uint32_t rank = 1; rank < count; ++rank) {
        const auto attempt = static_cast<std::uint32_t>(start.attempt);
        const std::uint32_t local = rank % per_machine;
        start.rank = RankPlace{rank, count, ranks->layout.host, port.number(), false, attempt, per_machine, local};
        static_cast<void>(others.spawn(run_rank(ranks, rank, start, on_event, others, exit)));
    }
    start.rank->rank = start.rank->local_rank = 0;
    // A cancellation reaches rank 0 only. When it ends, so do the others.
    co_await run_rank(ranks, 0, std::move(start), on_event, others, exit);
    co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
    while (others.size() > 1) {
        co_await others.changed().wait();
    }
    ranks->grace.cancel();
    co_await others.join();
    const bool failed = ranks->last && std::holds_alternative<FailedEvent>(*ranks->last);
    if (failed || !ranks->last) {
        on_event(ranks->cause ? *ranks->cause : std::get<FailedEvent>(*ranks->last));
    } else {
        on_event(*ranks->last);
    }
    co_return std::move(*exit);
}

class RankedWorker final : public WorkerProcess {
  public:
    RankedWorker(const asio::any_io_executor& executor, RankFactory make_worker, RankLayout layout)
        : ranks_(std::make_shared<Ranks>(executor, std::move(make_worker), std::move(layout))) {}

    asio::awaitable<Result<WorkerExit>> run(WorkerStart start, EventHandler on_event) override {
        const std::uint32_t given = ranks_->layout.count;
        const std::uint32_t count = given == 0 && start.spec ? start.spec->training.ranks : given;
        if (count > 1 && !start.rank) {
            return run_all(ranks_, std::move(start), std::move(on_event), count);
        }
        return ranks_->workers.front()->run(std::move(start), std::move(on_event));
    }
    void send(const WorkerCommand& command) override { ranks_->send(command); }
    void kill() override { ranks_->kill(); }

  private:
    std::shared_ptr<Ranks> ranks_;
};

}  // namespace

std::unique_ptr<WorkerProcess> make_ranked_worker(asio::any_io_executor executor, RankFactory make_worker,
                                                  RankLayout layout) {
    return std::make_unique<RankedWorker>(executor, std::move(make_worker), std::move(layout));
}

}  // namespace distilld

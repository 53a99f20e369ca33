#include "server/worker/train_worker.hpp"

#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/job_spec_json.hpp"
#include "base/cores.hpp"
#include "base/files/open_file.hpp"
#include "models/network/effective_dtype.hpp"
#include "models/ranks/rank_group.hpp"
#include "models/serving/local_engine.hpp"
#include "models/training/out_of_memory.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/async/task_group.hpp"
#include "server/protocol/failure_kinds.hpp"
#include "server/protocol/stdio_bridge.hpp"
#include "server/protocol/worker_channel.hpp"
#include "server/support/exit_codes.hpp"
#include "server/support/log.hpp"
#include "server/worker/composition.hpp"
#include "server/worker/generate_run.hpp"
#include "server/worker/machine/compute_threads.hpp"
#include "server/worker/machine/worker_threads.hpp"
#include "server/worker/orders.hpp"
#include "server/worker/preparation.hpp"
#include "server/worker/ranks/rank_run.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::seconds kFlushTimeout{5};

WorkerEvent failed(const Error& error) {
    return FailedEvent{to_string(error.kind), error.message};
}

int exit_code_of(const WorkerEvent& last) {
    if (std::holds_alternative<FinishedEvent>(last)) {
        return kDone;
    }
    return std::holds_alternative<CancelledEvent>(last) ? kInterrupted : kFailed;
}

/// One training job, from the first order to the last event.
class TrainWorker {
  public:
    explicit TrainWorker(int socket) : socket_(socket), signals_(threads_.io, SIGTERM, SIGINT) {}

    int run() {
        int code = kFailed;
        asio::co_spawn(threads_.io, serve(), [&code](const std::exception_ptr& thrown, int result) {
            if (thrown) {
                log_exception(thrown);
            } else {
                code = result;
            }
        });
        threads_.io.run();
        return code;
    }

  private:
    static void log_exception(const std::exception_ptr& thrown) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::exception& error) {
            log::error("worker", error.what());
        }
    }

    asio::awaitable<int> serve() {
        Result<std::unique_ptr<WorkerChannel>> channel = make_worker_channel(threads_.io.get_executor(), socket_);
        if (!channel) {
            log::error("worker", channel.error().message);
            co_return kFailed;
        }
        channel_ = std::move(*channel);
        TaskGroup followers(threads_.io.get_executor());
        static_cast<void>(followers.spawn(follow_signals(signals_, control_)));
        // When the parent is gone, nobody gets the last event.
        std::optional<WorkerEvent> last = co_await run_job(followers);
        co_await end_host_teachers(run_);
        if (last && ranks_) {
            last = co_await leave_ranks(*last);
        }
        if (last) {
            const WorkerEvent told = co_await finish_sinks(*last);
            to_service(told);
        }
        followers.cancel();
        co_await followers.join();
        co_await channel_->flush(kFlushTimeout);
        channel_->close();
        threads_.join();
        co_return last ? exit_code_of(*last) : kFailed;
    }

    asio::awaitable<std::optional<WorkerEvent>> run_job(TaskGroup& followers) {
        try {
            const Result<std::optional<DownMessage>> first = co_await channel_->receive();
            if (!first) {
                co_return failed(first.error());
            }
            if (!*first) {
                co_return std::nullopt;
            }
            const auto* start = std::get_if<WorkerStart>(&**first);
            if (start == nullptr) {
                co_return failed(Error{ErrorKind::internal, "the first message was not a start"});
            }
            if (start->files) {
                confine_files(*start->files);  // before the job opens anything
            }
            for (const auto& [name, value] : start->keys) {
                ::setenv(name.c_str(), value.c_str(), 1);  // no other thread works yet
            }
            const api::ParsedSpec spec = api::parse_job_spec(start->spec_json);
            if (!spec) {
                co_return failed(invalid_input(api::describe(spec.error())));
            }
            run_.spec = *spec;
            run_.attempt = {start->job_id, start->attempt};
            TrainingSpec& training = run_.spec.training;
            if (start->rank) {
                run_.spec.student.device = models::device_of_rank(run_.spec.student.device, start->rank->local_rank);
                if (training.threads == 0) {
                    training.threads = std::max(1U, core_count() / std::max(1U, start->rank->local_count));
                }
            }
            training.threads = set_compute_threads(training.threads);
            threads_.start_decoding(decode_threads_for(training.decode_threads, core_count()));
            // Follows orders beside the work.
            static_cast<void>(followers.spawn(obey()));
            if (run_.spec.kind == JobKind::generate) {
                co_return co_await generate(start->trace_file, start->task == 0);
            }
            co_return co_await prepare_and_train(*start);
        } catch (const models::RankLost& lost) {
            lost_ = lost;
            co_return CancelledEvent{run_.resumed.step, run_.resumed_from};
        } catch (const OutOfDeviceMemory& error) {
            co_return FailedEvent{kOutOfMemory, error.error().message};
        } catch (const ErrorException& error) {
            co_return failed(error.error());
        } catch (const std::exception& error) {
            if (models::is_out_of_memory(error)) {
                co_return FailedEvent{kOutOfMemory, "the worker ran out of memory: " + models::memory_words(error)};
            }
            co_return failed(Error{ErrorKind::internal, error.what()});
        }
    }

    /// Follows the service until it is gone. Then the kernel's timer ends us even if a thread hangs, because the job's
    /// next run waits for our folders.
    asio::awaitable<void> obey() {
        co_await follow_orders(*channel_, control_);
        log::warn("worker",
                  "the service is gone; saving the last step, within " + std::to_string(kOrphanTimeout.count()) + " s");
        ::alarm(static_cast<unsigned>(kOrphanTimeout.count()));
    }

    /// Waits for the other ranks.
    asio::awaitable<Result<void>> join_ranks(RankPlace place) {
        auto on_lost = [this](const models::RankLost& lost) {
            asio::post(threads_.io, [this, lost] {
                lost_ = lost;
                control_.end();
            });
        };
        auto on_stop = [this] { asio::post(threads_.io, [this] { control_.cancel(); }); };
        auto join = [this, place, on_lost, on_stop] {
            return models::RankGroup::join(place, on_lost, [this] { return control_.cancelled(); }, {}, on_stop);
        };
        Result<std::unique_ptr<models::RankGroup>> joined = co_await run_on(threads_.executors().compute, join);
        if (!joined) {
            co_return joined.error();
        }
        ranks_ = std::move(*joined);
        run_.ranks = ranks_.get();
        const std::function<void()> ask = [this] { ranks_->ask_to_stop(); };
        control_.join_ranks(place.rank == 0 ? std::function<void()>() : ask);
        send(LogEvent{"info", name_of_rank(place.rank, place.count) + " has joined at " + place.host + ":" +
                                  std::to_string(place.port)});
        co_return Result<void>();
    }

    /// Rank 0 prepares first and tells the others what it has decided.
    asio::awaitable<Result<void>> prepare_with_ranks(bool resume, EmitEvent emit) {
        if (ranks_) {
            auto find = [this] { find_host_ranks(run_); };
            co_await run_on(threads_.executors().compute, std::move(find));
        }
        if (!run_.follows()) {
            Result<void> prepared = co_await prepare(run_, resume, threads_.executors(), control_, emit);
            if (!prepared || !ranks_) {
                co_return prepared;
            }
        }
        auto exchange = [this] { return ranks_->gather(run_.follows() ? "" : words_to_ranks(run_)); };
        const std::vector<std::string> words = co_await run_on(threads_.executors().compute, std::move(exchange));
        if (!run_.follows()) {
            auto tell = [this] { return exchange_teacher_places(run_); };
            co_return co_await run_on(threads_.executors().compute, std::move(tell));
        }
        co_return co_await prepare_along(run_, words.front(), threads_.executors(), control_, emit);
    }

    /// Tells the other ranks how this one has ended.
    asio::awaitable<WorkerEvent> leave_ranks(WorkerEvent last) {
        if (lost_ && !lost_->left()) {
            last = FailedEvent{kRankLost, lost_->what()};
        }
        control_.leave_ranks();
        auto end = [this, last] {
            if (const auto* failed = std::get_if<FailedEvent>(&last)) {
                ranks_->fail(failed->message);
            }
            run_.student.reset();
            ranks_.reset();
        };
        co_await run_on(threads_.executors().compute, std::move(end));
        co_return last;
    }

    asio::awaitable<WorkerEvent> prepare_and_train(WorkerStart start) {
        const EmitEvent emit = [this](const WorkerEvent& event) { send(event); };
        if (start.rank) {
            if (Result<void> joined = co_await join_ranks(*start.rank); !joined) {
                co_return joined.error().kind == ErrorKind::cancelled ? WorkerEvent(CancelledEvent{})
                                                                      : failed(joined.error());
            }
        }
        const Result<void> prepared = co_await prepare_with_ranks(start.resume, emit);
        if (!prepared && prepared.error().kind == ErrorKind::cancelled) {
            co_return CancelledEvent{run_.resumed.step, run_.resumed_from};
        }
        if (!prepared) {
            co_return co_await failed_of_run(prepared.error());
        }
        if (const std::uint32_t replicas = run_.spec.training.replicas; replicas > 1) {
            threads_.start_replicas(replicas, compute_alone);
        }
        Result<WorkerEvent> last =
            co_await train_and_export(run_, threads_.executors(), control_, emit, start.trace_file);
        if (!last) {
            co_return co_await failed_of_run(last.error());
        }
        co_return std::move(*last);
    }

    /// Whatever failed, the loss of a folder is the cause: who has replaced us has removed what we wrote.
    asio::awaitable<WorkerEvent> failed_of_run(Error error) {
        auto look = [this, &error]() -> WorkerEvent {
            for (const FolderFence& fence : run_.fences) {
                if (const Result<void> ours = fence.check(); !ours && fence.is_lost()) {
                    return FailedEvent{kReplaced, ours.error().message};
                }
            }
            return failed(error);
        };
        co_return co_await run_on(threads_.executors().disk, std::move(look));
    }

    asio::awaitable<WorkerEvent> generate(std::string trace_file, bool waits_for_all) {
        const EmitEvent emit = [this](const WorkerEvent& event) { send(event); };
        GenerateWish wish{run_.spec, run_.attempt, models::local_models(run_.spec.student.device),
                          std::move(trace_file), waits_for_all};
        Result<WorkerEvent> last = co_await generate_answers(std::move(wish), threads_.executors(), control_, emit);
        if (!last) {
            co_return failed(last.error());
        }
        co_return std::move(*last);
    }

    /// The sinks get the end of the run before the service does: nothing follows it, not even a warning of theirs.
    asio::awaitable<WorkerEvent> finish_sinks(WorkerEvent last) {
        if (!run_.sinks) {
            co_return last;
        }
        run_.sinks->take(last);
        auto finish = [this] { run_.sinks->finish(); };
        co_await run_on(threads_.executors().disk, std::move(finish));
        if (auto* finished = std::get_if<FinishedEvent>(&last)) {
            finished->last.measures.sinks = run_.sinks->counters();
        }
        co_return last;
    }

    void send(const WorkerEvent& event) {
        if (run_.sinks) {
            run_.sinks->take(event);
        }
        if (const auto* progress = std::get_if<ProgressEvent>(&event); progress != nullptr && run_.sinks) {
            ProgressEvent counted = *progress;
            counted.measures.sinks = run_.sinks->counters();
            to_service(counted);
            return;
        }
        to_service(event);
    }

    void to_service(const WorkerEvent& event) {
        std::visit([this](const auto& one) { channel_->send(UpMessage(one)); }, event);
    }

    int socket_;  ///< to the service
    WorkerThreads threads_;
    asio::signal_set signals_;
    std::unique_ptr<WorkerChannel> channel_;
    RunControl control_;
    std::unique_ptr<models::RankGroup> ranks_;  ///< null: there is one rank
    std::optional<models::RankLost> lost_;
    PreparedRun run_;
};

}  // namespace

int run_train_worker(bool over_stdio) {
    // If the service dies, the reader of our log dies too; the last step must still be saved.
    std::signal(SIGPIPE, SIG_IGN);
    if (!over_stdio) {
        return TrainWorker(kWorkerProtocolFd).run();
    }
    const auto bridge = StdioBridge::take_over();
    if (!bridge) {
        log::error("worker", bridge.error().message);
        return kFailed;
    }
    return TrainWorker((*bridge)->release_socket()).run();
}

}  // namespace distilld

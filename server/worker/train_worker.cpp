#include "server/worker/train_worker.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/job_spec_json.hpp"
#include "base/files.hpp"
#include "base/folder_lock.hpp"
#include "base/sha256.hpp"
#include "base/time.hpp"
#include "models/checkpoint/store.hpp"
#include "models/training/causal_lm_student.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/core/batch_plan.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/graph/training_graph.hpp"
#include "pipeline/teacher/remote_teacher.hpp"
#include "server/protocol/worker_channel.hpp"
#include "server/support/log.hpp"
#include "server/worker/compute_threads.hpp"
#include "server/worker/memory_probe.hpp"
#include "server/worker/resume_identity.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kInterrupted = 130;
constexpr std::chrono::seconds kLockPatience{30};
constexpr std::uint64_t kLargestEvalRows = 4096;
constexpr std::uint32_t kByteVocabulary = 257;  // of make_byte_tokenizer()

const char* to_text(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::invalid_input:
            return "invalid_input";
        case ErrorKind::io:
            return "io";
        case ErrorKind::teacher:
            return "teacher";
        case ErrorKind::cancelled:
            return "cancelled";
        case ErrorKind::internal:
            return "internal";
    }
    return "internal";
}

/// Makes the folder, and makes and removes a file in it: what cannot be written to is found before the training, not
/// after it.
Result<void> require_writable(const std::filesystem::path& folder) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    if (failed) {
        return io_error("cannot create folder " + folder.string() + ": " + failed.message());
    }
    const Result<AtomicFile> probe = AtomicFile::create(folder / "probe");
    return probe ? Result<void>() : Result<void>(probe.error());
}

/// One training job: the composition root of the graph.
class TrainWorker {
  public:
    explicit TrainWorker(asio::io_context& io) : io_(io), signals_(io, SIGTERM, SIGINT) {}

    asio::awaitable<int> run() {
        Result<std::unique_ptr<WorkerChannel>> channel = make_worker_channel(io_.get_executor());
        if (!channel) {
            log::error("worker", channel.error().message);
            co_return kFailed;
        }
        channel_ = std::move(*channel);
        wait_for_signal();
        int code = kFailed;
        try {
            code = co_await train();
        } catch (const ErrorException& error) {
            fail(error.error());
        } catch (const std::exception& error) {
            fail(Error{ErrorKind::internal, error.what()});
        }
        signals_.cancel();
        co_await channel_->flush(std::chrono::seconds(5));
        channel_->close();
        compute_.join();
        staging_.join();
        disk_.join();
        co_return code;
    }

  private:
    void send(const WorkerEvent& event) {
        std::visit([this](const auto& one) { channel_->send(UpMessage(one)); }, event);
    }

    int fail(const Error& error) {
        send(FailedEvent{to_text(error.kind), error.message});
        return kFailed;
    }

    void info(const std::string& message) { send(LogEvent{"info", message}); }

    void wait_for_signal() {
        signals_.async_wait([this](const boost::system::error_code& error, int) {
            if (!error) {
                cancel();
            }
        });
    }

    void cancel() {
        cancelled_ = true;
        probe_cancel_.emit(asio::cancellation_type::terminal);
        if (graph_) {
            graph_->cancel();
        }
    }

    asio::awaitable<int> train() {
        auto starting = channel_->receive();
        Result<std::optional<DownMessage>> first = co_await std::move(starting);
        if (!first) {
            co_return fail(first.error());
        }
        if (!*first) {
            co_return kFailed;  // the parent is gone; nobody to tell
        }
        const auto* start = std::get_if<WorkerStart>(&**first);
        if (start == nullptr) {
            co_return fail(Error{ErrorKind::internal, "the first message was not a start"});
        }
        api::ParsedSpec parsed = api::parse_job_spec(start->spec_json);
        if (!parsed) {
            co_return fail(invalid_input(api::describe(parsed.error())));
        }
        spec_ = std::move(*parsed);
        spec_.training.threads = set_compute_threads(spec_.training.threads);

        // Orders are read beside the work; the reader ends with the channel.
        asio::co_spawn(io_, read_orders(), asio::detached);
        co_return co_await prepare_and_train(*start);
    }

    asio::awaitable<void> read_orders() {
        try {
            for (;;) {
                auto receiving = channel_->receive();
                Result<std::optional<DownMessage>> message = co_await std::move(receiving);
                if (!message) {
                    log::warn("worker", message.error().message);
                    continue;
                }
                if (!*message) {
                    break;
                }
                obey(**message);
            }
        } catch (const std::exception&) {
            // The channel was closed: the run is over.
        }
        cancel();  // the parent is gone: checkpoint and leave
    }

    void obey(const DownMessage& message) {
        if (std::holds_alternative<CancelCommand>(message)) {
            cancel();
        } else if (std::holds_alternative<CheckpointCommand>(message)) {
            if (graph_) {
                graph_->request_checkpoint();
            }
        } else if (const auto* limit = std::get_if<SetLimitCommand>(&message)) {
            if (graph_) {
                graph_->set_max_concurrent(limit->max_concurrent);
            }
        }
    }

    asio::awaitable<int> prepare_and_train(const WorkerStart& start) {
        // Everything that can be refused is refused before the first step.
        auto loading_student =
            run_on(compute_.get_executor(), std::function<Result<void>()>([this] { return load_student(); }));
        if (Result<void> loaded = co_await std::move(loading_student); !loaded) {
            co_return fail(loaded.error());
        }
        auto loading_data =
            run_on(staging_.get_executor(), std::function<Result<void>()>([this] { return load_data(); }));
        if (Result<void> loaded = co_await std::move(loading_data); !loaded) {
            co_return fail(loaded.error());
        }
        if (cancelled_) {
            co_return stopped(0, "");
        }

        const std::filesystem::path output(spec_.output);
        for (const std::filesystem::path& folder : {output, checkpoint_folder()}) {
            if (Result<void> writable = require_writable(folder); !writable) {
                co_return fail(writable.error());
            }
            if (!locks_.empty() && std::filesystem::equivalent(output, folder)) {
                continue;
            }
            auto locking = lock(folder);
            if (Result<void> locked = co_await std::move(locking); !locked) {
                co_return fail(locked.error());
            }
        }
        if (cancelled_) {
            co_return stopped(0, "");
        }
        models::CheckpointStore store(checkpoint_folder(), spec_.checkpoint.keep);
        RunState resumed;
        auto resuming = run_on(compute_.get_executor(), std::function<Result<RunState>()>([this, &store, &start] {
                                   return start.resume ? resume(store) : begin(store);
                               }));
        Result<RunState> state = co_await std::move(resuming);
        if (!state) {
            co_return fail(state.error());
        }
        resumed = std::move(*state);
        if (spec_.training.batch_size_auto) {
            auto probing =
                run_on(compute_.get_executor(), std::function<Result<void>()>([this] { return choose_batch_size(); }));
            if (Result<void> chosen = co_await std::move(probing); !chosen) {
                co_return fail(chosen.error());
            }
        }
        const std::uint64_t total_steps = steps();

        if (spec_.teacher) {
            auto connecting = connect_teacher();
            Result<void> connected = co_await std::move(connecting);
            if (cancelled_) {
                co_return stopped(resumed.step, "");
            }
            if (!connected) {
                co_return fail(connected.error());
            }
        }
        std::unique_ptr<TraceWriter> trace;
        if (!start.trace_file.empty()) {
            Result<std::unique_ptr<TraceWriter>> made = make_trace_writer(start.trace_file);
            if (!made) {
                co_return fail(made.error());
            }
            trace = std::move(*made);
        }
        send(StartedEvent{total_steps, resumed.step, student_->parameter_count(), dataset_->row_count(),
                          dataset_->token_count(), api::to_string(spec_.student.dtype), teacher_info_.description,
                          spec_.training.batch_size, spec_.training.micro_batches});

        GraphHooks hooks;
        hooks.on_event = [this](const WorkerEvent& event) { send(event); };
        hooks.commit_checkpoint = [&store](std::uint64_t step, const StudentSnapshot& snapshot) -> Result<std::string> {
            Result<std::filesystem::path> folder = store.commit(step, snapshot);
            if (!folder) {
                return folder.error();
            }
            return folder->string();
        };
        const GraphExecutors executors{io_.get_executor(), compute_.get_executor(), staging_.get_executor(),
                                       disk_.get_executor()};
        auto batches = std::make_shared<BatchSource>(
            dataset_, BatchPlan(dataset_->row_count(), spec_.training.batch_size, spec_.training.seed),
            spec_.training.micro_batches);
        graph_ = make_training_graph(executors, *student_, teacher_.get(), std::move(batches), eval_batches(),
                                     graph_options(resumed, total_steps), std::move(hooks), trace.get());
        auto running = graph_->run();
        Result<GraphOutcome> outcome = co_await std::move(running);
        graph_.reset();
        if (teacher_) {
            teacher_->close();
        }
        if (!outcome) {
            co_return fail(outcome.error());
        }
        if (outcome->cancelled) {
            co_return stopped(outcome->steps_done, outcome->checkpoint);
        }
        auto finishing = finish(std::move(*outcome), output);
        co_return co_await std::move(finishing);
    }

    /// Two runs must not write checkpoints into one folder. One that is just ending (its service was killed, it saves
    /// its last step) is waited for.
    asio::awaitable<Result<void>> lock(std::filesystem::path folder) {
        const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
        for (bool told = false;; told = true) {
            Result<std::optional<FolderLock>> taken = FolderLock::try_lock(folder);
            if (!taken) {
                co_return taken.error();
            }
            if (*taken) {
                locks_.push_back(std::move(**taken));
                co_return Result<void>();
            }
            if (cancelled_) {
                co_return Result<void>();
            }
            if (std::chrono::steady_clock::now() >= deadline) {
                co_return invalid_input("/output: another run uses " + folder.string());
            }
            if (!told) {
                info("waiting for another run to be done with " + folder.string());
            }
            asio::steady_timer pause(io_, std::chrono::milliseconds(100));
            co_await pause.async_wait(asio::use_awaitable);
        }
    }

    int stopped(std::uint64_t step, const std::string& checkpoint) {
        send(CancelledEvent{step, checkpoint});
        return kInterrupted;
    }

    asio::awaitable<int> finish(GraphOutcome outcome, std::filesystem::path output) {
        // Text that was read byte by byte needs the byte tokenizer's files beside the weights.
        const bool write_tokenizer = own_tokenizer_ && student_->vocabulary_size() >= kByteVocabulary;
        auto writing = run_on(disk_.get_executor(), std::function<Result<std::string>()>([&]() -> Result<std::string> {
                                  if (Result<void> written = outcome.final_snapshot->write_model(output); !written) {
                                      return written.error();
                                  }
                                  if (write_tokenizer) {
                                      if (Result<void> written = write_byte_tokenizer(output); !written) {
                                          return written.error();
                                      }
                                  }
                                  return sha256_file(output / "model.safetensors");
                              }));
        Result<std::string> hash = co_await std::move(writing);
        if (!hash) {
            co_return fail(hash.error());
        }
        send(FinishedEvent{outcome.last, output.string(), outcome.eval_loss, *hash});
        co_return kDone;
    }

    std::filesystem::path checkpoint_folder() const {
        if (!spec_.checkpoint.dir.empty()) {
            return spec_.checkpoint.dir;
        }
        return std::filesystem::path(spec_.output) / "checkpoints";
    }

    std::uint64_t steps() const {
        if (spec_.training.max_steps) {
            return *spec_.training.max_steps;
        }
        return steps_of_epochs(dataset_->row_count(), spec_.training.batch_size, spec_.training.micro_batches,
                               spec_.training.epochs.value_or(1.0));
    }

    Result<void> load_student() {
        models::CausalLmStudentOptions options;
        options.student = spec_.student;
        options.training = spec_.training;
        options.with_teacher = spec_.teacher.has_value();
        options.sequence_length = spec_.dataset.sequence_length;
        Result<std::unique_ptr<Student>> made = models::make_causal_lm_student(options);
        if (!made) {
            return made.error();
        }
        student_ = std::move(*made);
        return {};
    }

    Result<void> load_data() {
        std::unique_ptr<Tokenizer> tokenizer;
        if (!spec_.student.model.empty() && std::filesystem::exists(spec_.student.model)) {
            Result<std::unique_ptr<Tokenizer>> loaded = load_tokenizer(spec_.student.model);
            // Data of ready-made ids needs no tokenizer, so one that is not understood is refused by the first text.
            if (loaded) {
                tokenizer = std::move(*loaded);
            } else {
                tokenizer_error_ = loaded.error().message;
            }
        }
        own_tokenizer_ = tokenizer == nullptr && tokenizer_error_.empty();
        if (own_tokenizer_) {
            tokenizer = make_byte_tokenizer();
        }
        DatasetOptions options;
        options.sequence_length = spec_.dataset.sequence_length;
        options.packing = spec_.dataset.packing;
        options.vocabulary_size = student_->vocabulary_size();
        options.no_tokenizer_reason = tokenizer_error_;
        Result<std::unique_ptr<Dataset>> train = load_jsonl_dataset(spec_.dataset.train, tokenizer.get(), options);
        if (!train) {
            return train.error();
        }
        dataset_ = std::move(*train);
        if (!spec_.dataset.eval.empty()) {
            Result<std::unique_ptr<Dataset>> eval = load_jsonl_dataset(spec_.dataset.eval, tokenizer.get(), options);
            if (!eval) {
                return eval.error();
            }
            eval_ = std::move(*eval);
        }
        return {};
    }

    /// A first run: from step 0, whatever lies in the folder.
    Result<RunState> begin(const models::CheckpointStore& store) {
        Result<std::optional<std::uint64_t>> latest = store.latest_step();
        if (!latest) {
            return latest.error();
        }
        if (*latest) {
            send(LogEvent{"warn", store.folder().string() + " holds checkpoints of an earlier run, up to step " +
                                      std::to_string(**latest) +
                                      "; this run starts from step 0 and removes them when it writes its own"});
        }
        return RunState{};
    }

    Result<RunState> resume(models::CheckpointStore& store) {
        Result<models::NewestCheckpoint> newest = store.newest();
        if (!newest) {
            return newest.error();
        }
        if (!newest->warning.empty()) {
            send(LogEvent{"warn", newest->warning});
        }
        if (!newest->folder) {
            info("nothing to resume in " + store.folder().string() + ": starting from step 0");
            return RunState{};
        }
        Result<RunState> state = student_->restore(*newest->folder);
        if (!state) {
            return state.error();
        }
        adopt_batch_size(state->spec_json, spec_);
        Result<void> same = check_run_identity(state->spec_json, spec_, dataset_->hash());
        if (!same) {
            return invalid_input(newest->folder->string() + ": " + same.error().message);
        }
        if (const auto warning = threads_warning(state->spec_json, spec_)) {
            send(LogEvent{"warn", *warning});
        }
        info("resumed from " + newest->folder->string());
        return state;
    }

    Result<void> choose_batch_size() {
        MemoryProbeOptions options;
        options.sequence_length = spec_.dataset.sequence_length;
        options.with_teacher = spec_.teacher.has_value();
        if (spec_.teacher) {
            options.top_k = spec_.teacher->top_k;
            options.window_bytes = spec_.teacher->window_bytes;
        }
        const Result<std::unique_ptr<models::DeviceMemory>> memory = models::make_device_memory(spec_.student.device);
        if (!memory) {
            return memory.error();
        }
        Result<BatchAdvice> advice = advise_batch_size(*student_, **memory, options);
        if (!advice) {
            return advice.error();
        }
        info(advice->description);
        spec_.training.batch_size = advice->batch_size;
        spec_.training.batch_size_auto = false;
        return {};
    }

    asio::awaitable<Result<void>> connect_teacher() {
        RemoteTeacherOptions options;
        options.start_deadline = std::chrono::nanoseconds(from_seconds(spec_.teacher->startup_timeout_secs));
        options.on_warning = [this](const std::string& text) { send(LogEvent{"warn", text}); };
        Result<std::unique_ptr<TeacherSource>> made =
            make_remote_teacher(io_.get_executor(), staging_.get_executor(), *spec_.teacher, std::move(options));
        if (!made) {
            co_return made.error();
        }
        teacher_ = std::move(*made);
        std::string where = teacher_->endpoint_name(0);
        if (teacher_->endpoint_count() > 1) {
            where += " and " + std::to_string(teacher_->endpoint_count() - 1) + " more";
        }
        info("asking the teacher at " + where + " (one that is not up yet is waited for)");
        auto probing = asio::co_spawn(io_, teacher_->probe(student_->vocabulary_size()),
                                      asio::bind_cancellation_slot(probe_cancel_.slot(), asio::use_awaitable));
        Result<TeacherInfo> probed = co_await std::move(probing);
        if (!probed) {
            co_return probed.error();
        }
        teacher_info_ = std::move(*probed);
        for (const std::size_t endpoint : teacher_info_.absent) {
            send(LogEvent{"warn", teacher_->endpoint_name(endpoint) +
                                      ": not up; the job starts without this endpoint, which joins when it is"});
        }
        if (!teacher_info_.deterministic) {
            send(LogEvent{"warn",
                          "the teacher answered the same request with different bytes: weights will not be "
                          "reproducible bit for bit"});
        }
        co_return Result<void>();
    }

    std::vector<TokenBatch> eval_batches() const {
        std::vector<TokenBatch> batches;
        if (!eval_) {
            return batches;
        }
        const std::uint64_t rows = std::min(eval_->row_count(), kLargestEvalRows);
        for (std::uint64_t row = 0; row < rows;) {
            std::vector<std::uint64_t> indices;
            for (; row < rows && indices.size() < spec_.training.batch_size; ++row) {
                indices.push_back(row);
            }
            batches.push_back(eval_->batch(batches.size(), indices));
        }
        return batches;
    }

    GraphOptions graph_options(const RunState& resumed, std::uint64_t total_steps) const {
        GraphOptions options;
        options.training = spec_.training;
        options.first_step = resumed.step;
        options.total_steps = total_steps;
        options.checkpoint_every = spec_.checkpoint.every_steps;
        options.tokens_seen = resumed.tokens_seen;
        options.spec_json = make_run_identity(spec_, dataset_->hash());
        SchedulerOptions& scheduler = options.teacher.scheduler;
        if (spec_.teacher) {
            const TeacherSpec& teacher = *spec_.teacher;
            scheduler.endpoints = static_cast<std::uint32_t>(teacher.endpoints.size());
            scheduler.limit.adaptive = teacher.max_concurrent.automatic;
            scheduler.limit.ceiling = teacher.max_concurrent.limit;
            scheduler.window = teacher.window;
            scheduler.window_bytes = teacher.window_bytes;
            const std::uint64_t positions =
                static_cast<std::uint64_t>(spec_.training.batch_size) * spec_.dataset.sequence_length;
            scheduler.expected_bytes = expected_target_bytes(positions, teacher.top_k, student_->vocabulary_size());
            scheduler.retry.max_retries = teacher.max_retries;
            scheduler.hedge.enabled = teacher.hedge;
            options.teacher.deadline = std::chrono::nanoseconds(from_seconds(teacher.timeout_secs));
            options.teacher.absent_endpoints = teacher_info_.absent;
        }
        return options;
    }

    asio::io_context& io_;
    asio::signal_set signals_;
    asio::thread_pool compute_{1};
    asio::thread_pool staging_{1};
    asio::thread_pool disk_{1};
    std::unique_ptr<WorkerChannel> channel_;
    JobSpec spec_;
    std::unique_ptr<Student> student_;
    std::shared_ptr<const Dataset> dataset_;
    std::shared_ptr<const Dataset> eval_;
    std::string tokenizer_error_;
    bool own_tokenizer_ = false;
    std::vector<FolderLock> locks_;
    std::unique_ptr<TeacherSource> teacher_;
    TeacherInfo teacher_info_;  // of the probe; empty without a teacher
    asio::cancellation_signal probe_cancel_;
    std::unique_ptr<TrainingGraph> graph_;
    bool cancelled_ = false;
};

}  // namespace

int run_train_worker() {
    asio::io_context io(1);
    TrainWorker worker(io);
    int code = kFailed;
    asio::co_spawn(io, worker.run(), [&code](const std::exception_ptr& thrown, int result) {
        if (!thrown) {
            code = result;
        }
    });
    io.run();
    return code;
}

}  // namespace distilld

#include "pipeline/graph/generate_graph.hpp"

#include <algorithm>
#include <boost/asio/this_coro.hpp>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/async/condition.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/core/batch_plan.hpp"
#include "pipeline/core/token_count.hpp"
#include "pipeline/graph/batch_source.hpp"
#include "pipeline/graph/decode_stage.hpp"
#include "pipeline/graph/plan_stage.hpp"
#include "pipeline/graph/run_together.hpp"
#include "pipeline/graph/space_wait.hpp"
#include "pipeline/graph/teacher/teacher_stage.hpp"
#include "pipeline/graph/thrown_by.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

GraphTeacher asked(TeacherSource& source, const GenerateOptions& options,
                   std::function<void(const WorkerEvent&)> on_event, std::function<void()> on_short) {
    GraphTeacher teacher{"", &source, options.teacher};
    teacher.options.on_event = std::move(on_event);
    teacher.options.on_short = std::move(on_short);
    teacher.options.scheduler.first = 0;
    teacher.options.scheduler.end = 0;
    teacher.options.scheduler.growing = true;  // by what is claimed
    return teacher;
}

/// The store's rows, by any writer, and our tokens of the last micro-batches, by answering endpoint.
class GenerateMeter {
  public:
    GenerateMeter(Instant start, std::uint64_t rows) : start_(start), newest_(start) {
        marks_.push_back({start, rows, 0, {}});
    }

    /// `lost`: time of the run so far that rates leave out.
    void on_batch(std::uint64_t rows, std::uint64_t tokens, const FetchCounters& fetch, Instant now, Nanos lost) {
        newest_ = now;
        Mark mark{std::max(now - lost, marks_.back().at), rows, marks_.back().tokens + tokens, {}};
        for (const EndpointCounters& endpoint : fetch.endpoints) {
            mark.endpoints.push_back(endpoint.tokens);
        }
        marks_.push_back(std::move(mark));
        if (marks_.size() > kMarks) {
            marks_.pop_front();
        }
    }

    void fill(ProgressEvent& event) const {
        const Mark& newest = marks_.back();
        const Mark& oldest = marks_.front();
        const double span = to_seconds(newest.at - oldest.at);
        event.tokens = newest.tokens;
        event.seconds_elapsed = to_seconds(newest_ - start_);
        if (span <= 0) {
            return;
        }
        event.tokens_per_second = static_cast<double>(newest.tokens - oldest.tokens) / span;
        const double rows_per_second = static_cast<double>(newest.rows - oldest.rows) / span;
        const std::uint64_t left = event.total_steps - std::min(event.total_steps, event.step);
        event.seconds_remaining = rows_per_second > 0 ? static_cast<double>(left) / rows_per_second : 0;
        for (std::size_t i = 0; i < std::min(newest.endpoints.size(), event.fetch.endpoints.size()); ++i) {
            const std::uint64_t before = i < oldest.endpoints.size() ? oldest.endpoints[i] : 0;
            event.fetch.endpoints[i].tokens_per_second = static_cast<double>(newest.endpoints[i] - before) / span;
        }
    }

  private:
    static constexpr std::size_t kMarks = 65;
    struct Mark {
        Instant at;
        std::uint64_t rows;
        std::uint64_t tokens;
        std::vector<std::uint64_t> endpoints;
    };

    Instant start_;
    Instant newest_;
    std::deque<Mark> marks_;  // oldest first
};

class StagedGenerateGraph final : public GenerateGraph {
  public:
    StagedGenerateGraph(GraphExecutors executors, TeacherSource& source, std::shared_ptr<const Dataset> dataset,
                        StoreWriter& writer, GenerateOptions options, std::function<void(const WorkerEvent&)> on_event,
                        TraceWriter* trace)
        : io_(executors.io),
          disk_(executors.disk),
          writer_(writer),
          options_(std::move(options)),
          emit_(on_event ? std::move(on_event) : [](const WorkerEvent&) {}),
          plan_(io_, executors.staging,
                std::make_shared<BatchSource>(dataset, BatchPlan::once({}, options_.batch_rows), 1), trace),
          decode_(io_, executors.decoding(), executors.decode_threads, trace),
          claims_(io_),
          teacher_(io_, plan_, decode_, {asked(source, options_, emit_, [this] { claims_.notify(); })}, trace),
          space_(io_, emit_),
          meter_(options_.now(), writer.progress().held_rows),
          seen_sealed_(writer.progress().sealed_rows) {}

    asio::awaitable<Result<GenerateOutcome>> run() override {
        // The tasks refer to us, so they are joined whatever happens.
        const bool throwing = co_await asio::this_coro::throw_if_cancelled();
        co_await asio::this_coro::throw_if_cancelled(false);
        auto stages = run_together(io_, teacher_.run(), store_all(), claim_all());
        std::exception_ptr thrown = co_await thrown_by(std::move(stages));
        const std::exception_ptr unsettled = co_await thrown_by(settle());
        co_await asio::this_coro::throw_if_cancelled(throwing);
        rethrow_if(thrown);
        rethrow_if(unsettled);
        std::optional<Error> error = failure_;
        if (!error && !cancelled_) {
            error = teacher_.failure();
        }
        if (error) {
            co_return *error;
        }
        GenerateOutcome outcome;
        outcome.last = progress();
        outcome.cancelled = (cancelled_ || options_.waits_for_all) && outcome.last.step < outcome.last.total_steps;
        co_return outcome;
    }

    void cancel() override {
        cancelled_ = true;
        end_claims();
        teacher_.stop();
        space_.give_up();
    }
    void set_max_concurrent(std::uint32_t limit) override { teacher_.set_ceiling(limit); }

  private:
    asio::awaitable<void> store_all() {
        const std::exception_ptr thrown = co_await thrown_by(take_and_store());
        end_claims();
        teacher_.stop();
        rethrow_if(thrown);
    }

    asio::awaitable<void> claim_all() {
        const std::exception_ptr thrown = co_await thrown_by(claim_what_is_left());
        if (thrown || failure_) {
            teacher_.stop();
        }
        rethrow_if(thrown);
    }

    void end_claims() {
        claims_end_ = true;
        claims_.notify();
    }

    asio::awaitable<void> claim_what_is_left() {
        std::uint64_t batches = 0;
        while (!claims_end_) {
            const bool more = teacher_.short_of_batches();
            auto claim = [this, more] { return writer_.claim(more); };
            Result<StoreClaim> claimed = co_await run_on(disk_, std::move(claim));
            if (!claimed && claimed.error().kind != ErrorKind::disk_full) {
                failure_ = claimed.error();
                co_return;
            }
            const bool empty = !claimed || claimed->rows.empty();
            if (!empty) {
                batches = co_await plan_.append(std::move(claimed->rows));
            }
            const bool leaves = claimed && more && empty && !options_.waits_for_all;
            if (claimed) {
                note_others(*claimed, leaves);
                teacher_.set_end(batches, claimed->last || leaves);
            }
            if (claimed && (claimed->last || leaves)) {
                co_return;
            }
            if (empty) {
                // Nothing is free, or nothing is wanted yet; the stage reports when it is.
                const auto pause = more ? options_.poll : options_.heartbeat;
                co_await until(std::chrono::steady_clock::now() + pause, !more);
            }
        }
    }

    /// Or until the claims end, or the stage is short of batches and that matters.
    asio::awaitable<void> until(Condition::TimePoint deadline, bool or_short) {
        while (!claims_end_ && std::chrono::steady_clock::now() < deadline && !all_sealed() &&
               !(or_short && teacher_.short_of_batches())) {
            co_await claims_.wait(deadline);
        }
    }

    [[nodiscard]] bool all_sealed() const {
        const StoreProgress stored = writer_.progress();
        return stored.sealed_rows == stored.rows;
    }

    /// Shows shards sealed by others in the progress, and reports what we wait for.
    void note_others(const StoreClaim& claim, bool leaves) {
        const StoreProgress stored = writer_.progress();
        if (stored.sealed_rows > seen_sealed_) {
            seen_sealed_ = stored.sealed_rows;
            tell_progress();
        }
        const bool waits = claim.others_shards > 0 && claim.others_shards + stored.sealed_shards == stored.shards;
        if (waits && !told_of_others_) {
            emit_(LogEvent{"info",
                           (leaves ? "leaves " : "waits for ") + std::to_string(claim.others_shards) +
                               " shards of the store that other processes have leased; one of them: " + claim.other});
        }
        told_of_others_ = told_of_others_ || waits;
    }

    asio::awaitable<void> take_and_store() {
        while (!cancelled_ && !failure_) {
            teacher_.on_wanted();
            std::optional<MicroBatch> batch = co_await teacher_.next();
            if (!batch) {
                co_return;
            }
            const std::uint64_t number = batch->tokens->number;
            teacher_.on_taken(number);
            co_await store(std::move(*batch));
            teacher_.on_trained(number);
            teacher_.on_released(number);
        }
    }

    asio::awaitable<void> store(MicroBatch batch) {
        const std::uint64_t tokens = input_positions(*batch.tokens);
        auto shared = std::make_shared<const MicroBatch>(std::move(batch));
        std::function<Result<std::string>()> attempt = [this, shared]() -> Result<std::string> {
            const Result<void> added = writer_.add(*shared->tokens, *shared->targets);
            return added ? Result<std::string>(std::string()) : Result<std::string>(added.error());
        };
        const Result<std::string> written = co_await space_.perform(disk_, std::move(attempt));
        if (!written) {
            const bool given_up = cancelled_ && written.error().kind == ErrorKind::disk_full;
            failure_ = given_up ? std::nullopt : std::optional(written.error());
            co_return;
        }
        const Instant now = options_.now();
        meter_.on_batch(writer_.progress().held_rows, tokens, teacher_.counters(), now, teacher_.lost());
        if (all_sealed()) {
            claims_.notify();
        }
        const std::uint64_t sealed = writer_.progress().sealed_rows;
        const bool first_sealed = seen_sealed_ == 0 && sealed > 0;
        if (!told_ || first_sealed || now - *told_ >= Nanos(options_.progress_interval)) {
            seen_sealed_ = std::max(seen_sealed_, sealed);
            tell_progress();
        }
    }

    void tell_progress() {
        told_ = options_.now();
        emit_(progress());
    }

    /// What must survive a machine crash.
    asio::awaitable<void> settle() {
        auto sync = [this] { return writer_.sync(); };
        const Result<void> synced = co_await run_on(disk_, std::move(sync));
        if (!synced && !failure_ && !cancelled_) {
            failure_ = synced.error();
        }
    }

    [[nodiscard]] ProgressEvent progress() const {
        const StoreProgress stored = writer_.progress();
        ProgressEvent event;
        event.generates = true;
        event.of_samples = options_.of_samples;
        event.step = stored.held_rows;
        event.total_steps = stored.rows;
        event.stages = {plan_.times(), teacher_.times(), decode_.times()};
        event.bottleneck = std::string(stage_name(Stage::teacher));
        event.fetch = teacher_.counters();
        event.fetch.store = StoreCounters{stored.rows, stored.held_rows, stored.sealed_rows, stored.sealed_bytes};
        event.durations.requests = teacher_.durations();
        event.measures.queues = teacher_.queues();
        meter_.fill(event);
        return event;
    }

    asio::any_io_executor io_;
    asio::any_io_executor disk_;
    StoreWriter& writer_;
    GenerateOptions options_;
    std::function<void(const WorkerEvent&)> emit_;
    PlanStage plan_;
    DecodeStage decode_;
    Condition claims_;
    TeacherStage teacher_;
    SpaceWait space_;
    GenerateMeter meter_;
    std::uint64_t seen_sealed_;  ///< rows, whoever sealed them
    std::optional<Instant> told_;
    std::optional<Error> failure_;
    bool told_of_others_ = false;
    bool claims_end_ = false;
    bool cancelled_ = false;
};

}  // namespace

std::unique_ptr<GenerateGraph> make_generate_graph(GraphExecutors executors, TeacherSource& source,
                                                   std::shared_ptr<const Dataset> dataset, StoreWriter& writer,
                                                   GenerateOptions options,
                                                   std::function<void(const WorkerEvent&)> on_event,
                                                   TraceWriter* trace) {
    return std::make_unique<StagedGenerateGraph>(std::move(executors), source, std::move(dataset), writer,
                                                 std::move(options), std::move(on_event), trace);
}

}  // namespace distilld

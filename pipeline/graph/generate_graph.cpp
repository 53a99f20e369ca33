#include "pipeline/graph/generate_graph.hpp"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <deque>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/async/run_on.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/core/batch_plan.hpp"
#include "pipeline/graph/batch_source.hpp"
#include "pipeline/graph/decode_stage.hpp"
#include "pipeline/graph/plan_stage.hpp"
#include "pipeline/graph/space_wait.hpp"
#include "pipeline/graph/teacher_stage.hpp"
#include "pipeline/graph/thrown_by.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

std::vector<std::uint64_t> needed_rows(const Dataset& dataset, const StoreWriter& writer) {
    std::vector<std::uint64_t> rows;
    for (std::uint64_t row = 0; row < dataset.row_count(); ++row) {
        if (writer.needs(row)) {
            rows.push_back(row);
        }
    }
    return rows;
}

TeacherStageOptions stage_options(const GenerateOptions& options, std::uint64_t batches,
                                  std::function<void(const WorkerEvent&)> on_event) {
    TeacherStageOptions teacher = options.teacher;
    teacher.on_event = std::move(on_event);
    teacher.scheduler.first = 0;
    teacher.scheduler.end = batches;
    return teacher;
}

/// Rows and tokens of the last micro-batches, by the endpoint that answered for them.
class GenerateMeter {
  public:
    explicit GenerateMeter(Instant start) : start_(start) { marks_.push_back({start, 0, 0, {}}); }

    void on_batch(std::uint64_t rows, std::uint64_t tokens, const FetchCounters& fetch, Instant now) {
        Mark mark{now, marks_.back().rows + rows, marks_.back().tokens + tokens, {}};
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
        event.seconds_elapsed = to_seconds(newest.at - start_);
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
          rows_(needed_rows(*dataset, writer)),
          batches_((rows_.size() + options_.batch_rows - 1) / options_.batch_rows),
          plan_(executors.staging,
                std::make_shared<BatchSource>(dataset, BatchPlan::once(rows_, options_.batch_rows), 1), trace),
          decode_(io_, executors.decode ? executors.decode : executors.staging,
                  executors.decode ? executors.decode_threads : 1, trace),
          teacher_(make_teacher_stage(io_, plan_, decode_, &source, stage_options(options_, batches_, emit_), trace)),
          space_(io_, emit_),
          meter_(options_.now()) {}

    asio::awaitable<Result<GenerateOutcome>> run() override {
        // What runs refers to us, so it is joined whatever happens, to our caller too.
        const bool throwing = co_await asio::this_coro::throw_if_cancelled();
        co_await asio::this_coro::throw_if_cancelled(false);
        std::exception_ptr thrown = co_await thrown_by(both_stages());
        const std::exception_ptr unsettled = co_await thrown_by(settle());
        co_await asio::this_coro::throw_if_cancelled(throwing);
        rethrow_if(thrown);
        rethrow_if(unsettled);
        std::optional<Error> error = failure_;
        if (!error && !cancelled_) {
            error = teacher_->failure();
        }
        if (error) {
            co_return *error;
        }
        GenerateOutcome outcome;
        outcome.last = progress();
        outcome.cancelled = outcome.last.step < outcome.last.total_steps;
        co_return outcome;
    }

    void cancel() override {
        cancelled_ = true;
        teacher_->stop();
        space_.give_up();
    }
    void request_checkpoint() override {}  // what is written is kept
    void set_max_concurrent(std::uint32_t limit) override { teacher_->set_ceiling(limit); }

  private:
    asio::awaitable<void> both_stages() {
        TaskGroup stages(io_);
        if (!stages.spawn(teacher_->run()) || !stages.spawn(store_all())) {
            throw std::logic_error("the graph's task group is closed");
        }
        co_await stages.join();
        const auto state = co_await asio::this_coro::cancellation_state;
        if (state.cancelled() != asio::cancellation_type::none) {
            throw boost::system::system_error(asio::error::operation_aborted);
        }
    }

    asio::awaitable<void> store_all() {
        const std::exception_ptr thrown = co_await thrown_by(take_and_store());
        teacher_->stop();
        rethrow_if(thrown);
    }

    asio::awaitable<void> take_and_store() {
        while (!cancelled_ && !failure_) {
            teacher_->on_wanted();
            auto coming = teacher_->next();
            std::optional<MicroBatch> batch = co_await std::move(coming);
            if (!batch) {
                co_return;
            }
            const std::uint64_t number = batch->tokens->number;
            teacher_->on_taken(number);
            auto storing = store(std::move(*batch));
            co_await std::move(storing);
            teacher_->on_trained(number);
            teacher_->on_released(number);
        }
    }

    asio::awaitable<void> store(MicroBatch batch) {
        const std::uint64_t rows = batch.tokens->rows;
        std::uint64_t tokens = 0;
        for (const std::int32_t length : batch.tokens->lengths) {
            tokens += static_cast<std::uint64_t>(length);
        }
        auto shared = std::make_shared<const MicroBatch>(std::move(batch));
        std::function<Result<std::string>()> attempt = [this, shared]() -> Result<std::string> {
            const Result<void> added = writer_.add(*shared->tokens, *shared->targets);
            return added ? Result<std::string>(std::string()) : Result<std::string>(added.error());
        };
        auto writing = space_.perform(disk_, std::move(attempt));
        const Result<std::string> written = co_await std::move(writing);
        if (!written) {
            const bool given_up = cancelled_ && written.error().kind == ErrorKind::disk_full;
            failure_ = given_up ? std::nullopt : std::optional(written.error());
            co_return;
        }
        const Instant now = options_.now();
        meter_.on_batch(rows, tokens, teacher_->counters(), now);
        if (!told_ || now - *told_ >= Nanos(options_.progress_interval)) {
            told_ = now;
            emit_(progress());
        }
    }

    /// What a machine's crash must not take.
    asio::awaitable<void> settle() {
        auto sync = [this] { return writer_.sync(); };
        auto syncing = run_on(disk_, std::move(sync));
        const Result<void> synced = co_await std::move(syncing);
        if (!synced && !failure_ && !cancelled_) {
            failure_ = synced.error();
        }
    }

    [[nodiscard]] ProgressEvent progress() const {
        const StoreProgress stored = writer_.progress();
        ProgressEvent event;
        event.generates = true;
        event.step = stored.held_rows;
        event.total_steps = stored.rows;
        event.stages = {plan_.times(), teacher_->times(), decode_.times()};
        event.bottleneck = std::string(stage_name(Stage::teacher));
        event.fetch = teacher_->counters();
        event.fetch.store = StoreCounters{stored.rows, stored.held_rows, stored.sealed_rows, stored.sealed_bytes};
        event.durations.requests = teacher_->durations();
        event.measures.queues = teacher_->queues();
        meter_.fill(event);
        return event;
    }

    asio::any_io_executor io_;
    asio::any_io_executor disk_;
    StoreWriter& writer_;
    GenerateOptions options_;
    std::function<void(const WorkerEvent&)> emit_;
    std::vector<std::uint64_t> rows_;  ///< that are to be generated
    std::uint64_t batches_;
    PlanStage plan_;
    DecodeStage decode_;
    std::unique_ptr<TeacherStage> teacher_;
    SpaceWait space_;
    GenerateMeter meter_;
    std::optional<Instant> told_;
    std::optional<Error> failure_;
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

#include "server/worker/generate_run.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/scope_exit.hpp"
#include "models/families/adapter_config.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/core/effective_overflow.hpp"
#include "pipeline/graph/generate_graph.hpp"
#include "pipeline/graph/space_wait.hpp"
#include "pipeline/store/store_reader.hpp"
#include "pipeline/store/store_writer.hpp"
#include "server/protocol/failure_kinds.hpp"
#include "server/worker/generate_vocabulary.hpp"
#include "server/worker/gives_up.hpp"
#include "server/worker/machine/disk_space.hpp"
#include "server/worker/run_folders.hpp"
#include "server/worker/store_plan.hpp"
#include "server/worker/teacher/teacher_connection.hpp"
#include "server/worker/training_data.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

/// The data of a generate job.
struct LoadedData {
    std::shared_ptr<const Dataset> dataset;
    StoredData stored;
    std::string tokenizer;  ///< described in one line
};

class GenerateRun {
  public:
    GenerateRun(GenerateWish wish, GraphExecutors executors, RunControl& control, EmitEvent emit)
        : spec_(std::move(wish.spec)),
          attempt_(std::move(wish.attempt)),
          local_(std::move(wish.local)),
          executors_(std::move(executors)),
          control_(control),
          emit_(std::move(emit)),
          trace_file_(std::move(wish.trace_file)),
          waits_for_all_(wish.waits_for_all) {}

    asio::awaitable<Result<WorkerEvent>> perform() {
        std::function<Result<LoadedData>()> load = [this] { return load_data(); };
        Result<LoadedData> loaded = co_await run_on(executors_.staging, std::move(load));
        if (!loaded && loaded.error().kind == ErrorKind::cancelled) {
            co_return cancelled(0);
        }
        if (!loaded) {
            co_return loaded.error();
        }
        data_ = std::move(*loaded);
        std::function<Result<std::optional<StoreProgress>>()> look = [this] { return look_at_store(); };
        const Result<std::optional<StoreProgress>> there = co_await run_on(executors_.disk, std::move(look));
        if (!there) {
            co_return there.error();
        }
        if (*there && (*there)->sealed_rows == (*there)->rows) {
            emit_(LogEvent{"info", folder() + " holds all rows already: not asking the teacher"});
            emit_(started(**there));
            co_return finished(**there);
        }
        if (control_.cancelled()) {
            co_return cancelled(*there ? (*there)->sealed_rows : 0);
        }
        TeacherWish wish{*spec_.teacher(), spec_.training.batch_size, data_.stored, local_};
        Result<ConnectedTeacher> connected = co_await connect_endpoints(std::move(wish), executors_, control_, emit_);
        if (!connected && connected.error().kind == ErrorKind::cancelled) {
            co_return cancelled(*there ? (*there)->sealed_rows : 0);
        }
        if (!connected) {
            co_return connected.error();
        }
        teacher_ = std::move(*connected);
        const Result<std::string> opened = co_await open_store();
        if (!opened && control_.cancelled()) {
            co_return cancelled(0);
        }
        if (!opened) {
            co_return opened.error();
        }
        co_return co_await generate();
    }

  private:
    [[nodiscard]] const std::string& folder() const { return spec_.teacher()->store; }
    [[nodiscard]] bool of_samples() const { return spec_.dataset.format == DataFormat::tensors; }

    Result<LoadedData> load_data() const {
        if (const auto reason = no_store_reason(folder())) {
            return invalid_input("/teacher/store: " + *reason);
        }
        const Result<std::uint32_t> vocabulary = of_samples() ? 0U : vocabulary_of_answers(spec_);
        if (!vocabulary) {
            return vocabulary.error();
        }
        const auto model = models::folder_with(model_of_answers(spec_).folder, "tokenizer.json");
        const Result<TokenizerChoice> choice =
            of_samples() ? TokenizerChoice() : choose_tokenizer({spec_.student.tokenizer, model, *vocabulary});
        if (!choice) {
            return choice.error();
        }
        JobSpec spec = spec_;
        spec.dataset.overflow = effective_overflow(spec.dataset);
        if (spec.dataset.packing == Packing::documents) {
            spec.dataset.packing = Packing::off;  // answers belong to documents, however a student packs them
        }
        const auto tell = [this](const std::string& text) { emit_(LogEvent{"info", text}); };
        const auto stopped = [this] { return control_.cancelled(); };
        const auto warn = [this](const std::string& text) { emit_(LogEvent{"warn", text}); };
        const Result<std::shared_ptr<const TeacherTokenizer>> of_teacher = teacher_tokenizer_of(spec, *choice);
        if (!of_teacher) {
            return of_teacher.error();
        }
        const DataReading reading{spec, *choice, *vocabulary, of_teacher->get(), tell, stopped, nullptr, warn};
        Result<std::shared_ptr<const Dataset>> rows = load_rows(reading, "train", spec.dataset.train);
        if (!rows) {
            return rows.error();
        }
        Result<std::string> hash = tokenizer_hash((*rows)->has_text(), *choice);
        if (!hash) {
            return hash.error();
        }
        LoadedData data;
        data.stored = {
            nullptr,     asked_length(spec.dataset, **rows),      std::move(*hash),
            *vocabulary, spec.dataset.packing != Packing::joined, tokenizer_signs((*rows)->has_text(), *choice)};
        use_tokenizer(data.stored, of_teacher->get());
        data.stored.alignment = nullptr;  // the rows are the teacher's own
        data.tokenizer = of_samples() ? "" : choice->description((*rows)->has_text());
        data.dataset = {*rows, &(*rows)->asked_about()};
        data.stored.dataset = data.dataset.get();
        return data;
    }

    /// The progress of the store in the folder, if we may continue it; nullopt: no store.
    Result<std::optional<StoreProgress>> look_at_store() const {
        if (!store_exists(folder())) {
            return std::optional<StoreProgress>();
        }
        const Result<std::unique_ptr<StoreReader>> reader = open_store_reader(folder());
        if (!reader) {
            return Error{reader.error().kind, "/teacher/store: " + reader.error().message};
        }
        const StoreManifest& manifest = (*reader)->manifest();
        if (Result<void> ours = check_store(manifest, wish_of(*spec_.teacher(), data_.stored)); !ours) {
            return ours.error();
        }
        if (Result<void> same = check_stored_format(manifest, *spec_.teacher()); !same) {
            return same.error();
        }
        for (const auto& [number, defect] : (*reader)->damaged()) {
            emit_(LogEvent{"warn", "/teacher/store: " + defect + "; the teacher is asked for its rows"});
        }
        StoreProgress progress;
        progress.rows = manifest.rows;
        progress.sealed_rows = (*reader)->sealed_rows();
        progress.held_rows = progress.sealed_rows;
        for (const StoreShard& shard : (*reader)->shards()) {
            progress.sealed_bytes += shard.bytes;
        }
        return std::optional(progress);
    }

    /// Waits while the disk is full.
    asio::awaitable<Result<std::string>> open_store() {
        SpaceWait space(executors_.io, emit_);
        const GivesUp gives_up(control_, space);
        std::function<Result<std::string>()> attempt = [this]() -> Result<std::string> {
            StoreWriterOptions options;
            options.shared = true;
            options.leases.attempt = attempt_;
            Result<std::shared_ptr<StoreWriter>> opened =
                open_writer(*spec_.teacher(), data_.stored, teacher_.info, std::move(options));
            if (!opened) {
                return is_read_only(folder()) ? io_error(opened.error().message) : opened.error();
            }
            writer_ = std::move(*opened);
            return folder();
        };
        co_return co_await space.perform(executors_.disk, std::move(attempt));
    }

    asio::awaitable<Result<WorkerEvent>> generate() {
        std::unique_ptr<TraceWriter> trace;
        if (!trace_file_.empty()) {
            Result<std::unique_ptr<TraceWriter>> made = make_trace_writer(trace_file_);
            if (!made) {
                co_return made.error();
            }
            trace = std::move(*made);
        }
        emit_(started(writer_->progress()));
        GenerateOptions options;
        options.batch_rows = spec_.training.batch_size;
        options.of_samples = of_samples();
        options.waits_for_all = waits_for_all_;
        options.teacher = teacher_stage_options(*spec_.teacher(), *teacher_.source, teacher_.info, options.batch_rows,
                                                data_.stored.sequence_length, executors_.decode_threads);
        const std::unique_ptr<GenerateGraph> graph = make_generate_graph(
            executors_, *teacher_.source, data_.dataset, *writer_, std::move(options), emit_, trace.get());
        control_.attach(*graph);
        const ScopeExit ended([this] { control_.detach(); });
        Result<GenerateOutcome> outcome = co_await graph->run();
        teacher_.source->close();
        if (!outcome && writer_->is_replaced()) {
            co_return WorkerEvent(FailedEvent{kReplaced, outcome.error().message});
        }
        if (!outcome) {
            co_return outcome.error();
        }
        if (outcome->cancelled) {
            co_return cancelled(outcome->last.step);
        }
        co_return WorkerEvent(FinishedEvent{outcome->last, folder(), std::nullopt, ""});
    }

    [[nodiscard]] StartedEvent started(const StoreProgress& progress) const {
        StartedEvent event;
        event.total_steps = progress.rows;
        event.first_step = progress.held_rows;
        event.dataset_rows = progress.rows;
        event.dataset_tokens = data_.dataset->token_count();
        event.dataset_tokens_read = data_.dataset->tokens_read();
        event.teacher = teacher_.info.description;
        event.batch_size = spec_.training.batch_size;
        event.micro_batches = 1;
        event.tokenizer = data_.tokenizer;
        event.store = folder();
        event.of_samples = of_samples();
        return event;
    }

    /// Nothing was left to do.
    [[nodiscard]] WorkerEvent finished(const StoreProgress& progress) const {
        ProgressEvent last;
        last.generates = true;
        last.of_samples = of_samples();
        last.step = progress.rows;
        last.total_steps = progress.rows;
        last.fetch.store =
            StoreCounters{progress.rows, progress.held_rows, progress.sealed_rows, progress.sealed_bytes};
        return FinishedEvent{std::move(last), folder(), std::nullopt, ""};
    }

    [[nodiscard]] WorkerEvent cancelled(std::uint64_t rows) const {
        return CancelledEvent{rows, rows > 0 ? folder() : std::string()};
    }

    JobSpec spec_;
    JobAttempt attempt_;
    models::LocalModels local_;
    GraphExecutors executors_;
    RunControl& control_;
    EmitEvent emit_;
    std::string trace_file_;
    bool waits_for_all_;
    LoadedData data_;
    ConnectedTeacher teacher_;
    std::shared_ptr<StoreWriter> writer_;
};

}  // namespace

asio::awaitable<Result<WorkerEvent>> generate_answers(GenerateWish wish, GraphExecutors executors, RunControl& control,
                                                      EmitEvent emit) {
    GenerateRun run(std::move(wish), std::move(executors), control, std::move(emit));
    co_return co_await run.perform();
}

}  // namespace distilld

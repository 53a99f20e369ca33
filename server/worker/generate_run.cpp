#include "server/worker/generate_run.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/files.hpp"
#include "base/json_members.hpp"
#include "base/json_text.hpp"
#include "base/open_file.hpp"
#include "models/families/adapter_config.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/core/overflow_in_force.hpp"
#include "pipeline/graph/generate_graph.hpp"
#include "pipeline/graph/space_wait.hpp"
#include "pipeline/store/store_reader.hpp"
#include "pipeline/store/store_writer.hpp"
#include "server/worker/disk_space.hpp"
#include "server/worker/gives_up.hpp"
#include "server/worker/run_folders.hpp"
#include "server/worker/store_plan.hpp"
#include "server/worker/teacher_connection.hpp"
#include "server/worker/training_data.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20U;
constexpr std::size_t kMaxConfigDepth = 32;

/// What a generate job knows of its data.
struct LoadedData {
    std::shared_ptr<const Dataset> dataset;
    StoredData stored;
    std::string tokenizer;  ///< in one line
};

/// The vocab_size of a config.json; nothing when it names none.
std::optional<std::uint32_t> vocabulary_of(const std::string& config) {
    const auto parsed = parse_json_text(config, kMaxConfigDepth);
    const auto* object = parsed ? parsed->if_object() : nullptr;
    const auto* size = object != nullptr ? object->if_contains("vocab_size") : nullptr;
    return size != nullptr && size->is_number() ? JsonMembers::whole_number<std::uint32_t>(*size) : std::nullopt;
}

/// The model whose vocabulary and tokenizer count: the student that the answers are for, or, where the spec has none,
/// the teacher. `pointer` is where the spec names it.
struct NamedModel {
    std::string folder;
    const char* pointer;
};
NamedModel model_of(const JobSpec& spec) {
    if (!spec.student.model.empty() || spec.student.config_json) {
        return {spec.student.model, "/student/model"};
    }
    return {spec.teacher->model_dir, "/teacher/model_dir"};
}

/// The student may be of a kind that we cannot train. Without a model, what a tokenizer knows.
Result<std::uint32_t> vocabulary_of(const JobSpec& spec) {
    const StudentSpec& student = spec.student;
    const NamedModel model = model_of(spec);
    std::optional<std::uint32_t> found = vocabulary_of(student.config_json.value_or(""));
    std::string place = "/student/config";
    if (!found && !model.folder.empty()) {
        const auto file = models::folder_with(model.folder, "config.json") / "config.json";
        const Result<std::string> text = read_text_file(file, kMaxConfigBytes);
        if (!text) {
            return Error{text.error().kind, std::string(model.pointer) + ": " + text.error().message};
        }
        found = vocabulary_of(*text);
        place = std::string(model.pointer) + ": " + file.string();
    }
    if (found && *found > 0) {
        return *found;
    }
    if (student.config_json || !model.folder.empty()) {
        return invalid_input(place + ": names no vocab_size");
    }
    if (student.tokenizer.empty()) {
        return invalid_input(
            "/student/tokenizer: is not given, nor is /student/model: name the folder of the tokenizer that student "
            "and "
            "teacher share; of data with ready-made input_ids, and of bytes (257), /student/config/vocab_size is "
            "enough");
    }
    const Result<std::unique_ptr<Tokenizer>> tokenizer = load_tokenizer(student.tokenizer);
    if (!tokenizer && tokenizer.error().kind == ErrorKind::path_not_allowed) {
        return invalid_at("/student/tokenizer", tokenizer.error());
    }
    if (!tokenizer || !*tokenizer) {
        const std::string why = tokenizer ? student.tokenizer + " has no tokenizer.json" : tokenizer.error().message;
        return invalid_input("/student/tokenizer: " + why + "; or say /student/config/vocab_size");
    }
    return (*tokenizer)->vocabulary_size();
}

class GenerateRun {
  public:
    GenerateRun(JobSpec spec, models::LoadTeacherModel load_model, GraphExecutors executors, RunControl& control,
                EmitEvent emit, std::string trace_file)
        : spec_(std::move(spec)),
          load_model_(std::move(load_model)),
          executors_(std::move(executors)),
          control_(control),
          emit_(std::move(emit)),
          trace_file_(std::move(trace_file)) {}

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
            emit_(LogEvent{"info", folder() + " holds all rows already: the teacher is not asked"});
            emit_(started(**there));
            co_return finished(**there);
        }
        if (control_.cancelled()) {
            co_return cancelled(*there ? (*there)->sealed_rows : 0);
        }
        TeacherWish wish{*spec_.teacher, spec_.training.batch_size, data_.stored, load_model_};
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
    [[nodiscard]] const std::string& folder() const { return spec_.teacher->store; }

    Result<LoadedData> load_data() const {
        const Result<std::uint32_t> vocabulary = vocabulary_of(spec_);
        if (!vocabulary) {
            return vocabulary.error();
        }
        const auto model = models::folder_with(model_of(spec_).folder, "tokenizer.json");
        const Result<TokenizerChoice> choice = choose_tokenizer({spec_.student.tokenizer, model, *vocabulary});
        if (!choice) {
            return choice.error();
        }
        JobSpec spec = spec_;
        spec.dataset.overflow = overflow_in_force(spec.dataset);
        if (spec.dataset.packing == Packing::documents) {
            spec.dataset.packing = Packing::off;  // answers are to documents, wherever a student has them lie
        }
        const auto tell = [this](const std::string& text) { emit_(LogEvent{"info", text}); };
        const auto stopped = [this] { return control_.cancelled(); };
        const auto warn = [this](const std::string& text) { emit_(LogEvent{"warn", text}); };
        const DataReading reading{spec, *choice, *vocabulary, tell, stopped, nullptr, warn};
        Result<std::shared_ptr<const Dataset>> rows = load_rows(reading, "train", spec.dataset.train);
        if (!rows) {
            return rows.error();
        }
        Result<std::string> hash = tokenizer_hash(**rows, *choice);
        if (!hash) {
            return hash.error();
        }
        LoadedData data;
        data.dataset = std::move(*rows);
        data.stored = {
            data.dataset.get(), spec_.dataset.sequence_length,           std::move(*hash),
            *vocabulary,        spec.dataset.packing != Packing::joined, tokenizer_signs(*data.dataset, *choice)};
        data.tokenizer = choice->description(data.dataset->has_text());
        return data;
    }

    /// What is in the folder, when it is ours to go on with; nothing: no store.
    Result<std::optional<StoreProgress>> look_at_store() const {
        if (!store_exists(folder())) {
            return std::optional<StoreProgress>();
        }
        const Result<std::unique_ptr<StoreReader>> reader = open_store_reader(folder());
        if (!reader) {
            return Error{reader.error().kind, "/teacher/store: " + reader.error().message};
        }
        const StoreManifest& manifest = (*reader)->manifest();
        if (Result<void> ours = check_store(manifest, wish_of(*spec_.teacher, data_.stored)); !ours) {
            return ours.error();
        }
        if (Result<void> same = check_stored_format(manifest, *spec_.teacher); !same) {
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

    /// A full disk is waited out.
    asio::awaitable<Result<std::string>> open_store() {
        SpaceWait space(executors_.io, emit_);
        const GivesUp gives_up(control_, space);
        std::function<Result<std::string>()> attempt = [this]() -> Result<std::string> {
            Result<std::shared_ptr<StoreWriter>> opened =
                open_writer(*spec_.teacher, data_.stored, teacher_.info, true);
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
        options.teacher = teacher_stage_options(*spec_.teacher, *teacher_.source, teacher_.info, options.batch_rows,
                                                spec_.dataset.sequence_length, executors_.decode_threads);
        const std::unique_ptr<GenerateGraph> graph = make_generate_graph(
            executors_, *teacher_.source, data_.dataset, *writer_, std::move(options), emit_, trace.get());
        control_.attach(*graph);
        struct Detach {
            RunControl& control;
            ~Detach() { control.detach(); }
        };
        const Detach detach{control_};
        Result<GenerateOutcome> outcome = co_await graph->run();
        teacher_.source->close();
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
        return event;
    }

    /// Nothing was left to do.
    [[nodiscard]] WorkerEvent finished(const StoreProgress& progress) const {
        ProgressEvent last;
        last.generates = true;
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
    models::LoadTeacherModel load_model_;
    GraphExecutors executors_;
    RunControl& control_;
    EmitEvent emit_;
    std::string trace_file_;
    LoadedData data_;
    ConnectedTeacher teacher_;
    std::shared_ptr<StoreWriter> writer_;
};

}  // namespace

asio::awaitable<Result<WorkerEvent>> generate_answers(JobSpec spec, models::LoadTeacherModel load_model,
                                                      GraphExecutors executors, RunControl& control, EmitEvent emit,
                                                      std::string trace_file) {
    GenerateRun run(std::move(spec), std::move(load_model), std::move(executors), control, std::move(emit),
                    std::move(trace_file));
    co_return co_await run.perform();
}

}  // namespace distilld

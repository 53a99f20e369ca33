#include "server/worker/preparation.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/network/effective_dtype.hpp"
#include "models/serving/local_engine.hpp"
#include "models/training/causal_lm_student.hpp"
#include "models/training/device_memory.hpp"
#include "models/training/torchscript_student.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/core/effective_overflow.hpp"
#include "server/worker/eval/eval_program.hpp"
#include "server/worker/export_owner.hpp"
#include "server/worker/held_out_rows.hpp"
#include "server/worker/load_data.hpp"
#include "server/worker/machine/arithmetic.hpp"
#include "server/worker/machine/disk_space.hpp"
#include "server/worker/ranks/rank_run.hpp"
#include "server/worker/resume_identity.hpp"
#include "server/worker/run_folders.hpp"
#include "server/worker/run_plan.hpp"
#include "server/worker/run_sinks.hpp"
#include "server/worker/starting_point.hpp"
#include "server/worker/teacher/job_teachers.hpp"
#include "server/worker/teacher/teacher_targets.hpp"
#include "server/worker/training_choices.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

Result<Dtype> dtype_here(std::string_view device) {
    return models::effective_dtype(Dtype::auto_select, device);
}

class Preparation {
  public:
    Preparation(PreparedRun& run, GraphExecutors executors, RunControl& control, EmitEvent emit)
        : run_(run),
          executors_(std::move(executors)),
          control_(control),
          emit_(std::move(emit)),
          left_open_(open_arithmetics(run.spec)) {}

    asio::awaitable<Result<void>> perform(bool resume) {
        if (const auto found = find_eval_program(run_.spec.eval); !found) {
            co_return found.error();
        }
        auto loading_student = on(executors_.compute, [this, resume] {
            keep_decisions(resume);
            return load_student();
        });
        if (Result<void> loaded = co_await std::move(loading_student); !loaded) {
            co_return loaded;
        }
        auto loading_data = on(executors_.staging, [this] { return load_data(); });
        if (Result<void> loaded = co_await std::move(loading_data); !loaded) {
            co_return loaded;
        }
        auto telling = on(executors_.compute, [this] {
            run_.student->set_export_tokenizer(export_tokenizer_);
            return try_first_rows(run_);
        });
        if (Result<void> told = co_await std::move(telling); !told) {
            co_return told;
        }
        if (Result<void> taken = co_await take_folders(); !taken) {
            co_return taken;
        }
        auto resuming = on(executors_.compute, [this, resume] { return begin_or_go_on(resume); });
        if (Result<void> found = co_await std::move(resuming); !found) {
            co_return found;
        }
        if (run_.spec.training.batch_size_auto && takes_memory_beside(run_.spec)) {
            // The probe must find the teacher's memory already taken.
            if (Result<void> connected = co_await connect_teachers(); !connected) {
                co_return connected;
            }
        }
        if (run_.spec.training.batch_size_auto || run_.spec.training.micro_batches_auto) {
            auto choosing = on(executors_.compute, [this] { return choose_batch(run_, emit_); });
            if (Result<void> chosen = co_await std::move(choosing); !chosen) {
                co_return chosen;
            }
        }
        auto settling = on(executors_.compute, [this] { return settle_replicas(run_, emit_); });
        if (Result<void> settled = co_await std::move(settling); !settled) {
            co_return settled;
        }
        if (Result<void> settled = settle_steps(run_, emit_); !settled) {
            co_return settled;
        }
        if (run_.spec.has_teacher() && run_.resumed.step < run_.total_steps) {
            const bool has_model = !run_.teachers.empty() && !local_model_of(*run_.spec.teacher()).empty();
            if (!has_model) {  // it is loaded once
                if (Result<void> connected = co_await connect_teachers(); !connected) {
                    co_return connected;
                }
            }
            if (Result<void> same = recognise_teacher(); !same) {
                co_return same;
            }
            co_await ask_about_held_out(run_, executors_, emit_);
        }
        if (Result<void> prepared = co_await prepare_rollouts(run_, executors_, control_, emit_); !prepared) {
            co_return prepared;
        }
        auto opening = on(executors_.disk, [this, resume] { return open_run_sinks(run_, resume, emit_); });
        if (Result<void> opened = co_await std::move(opening); !opened) {
            co_return opened;
        }
        auto setting_aside = on(executors_.disk, [this] {
            return set_damaged_aside(checkpoint_store(run_.spec, run_.checkpoint_fence()), run_.damaged_checkpoints,
                                     emit_);
        });
        if (Result<void> set_aside = co_await std::move(setting_aside); !set_aside) {
            co_return set_aside;
        }
        if (run_.replaces_checkpoints) {
            auto removing = on(executors_.disk, [this] { return remove_replaced(); });
            if (Result<void> removed = co_await std::move(removing); !removed) {
                co_return removed;
            }
        }
        auto sweeping = on(executors_.disk, [this] { return sweep_tokens(); });
        if (Result<void> swept = co_await std::move(sweeping); !swept) {
            co_return swept;
        }
        co_return control_.cancelled() ? Result<void>(stopped_on_request()) : Result<void>();
    }

    asio::awaitable<Result<void>> perform_along(std::string words) {
        auto loading = on(executors_.compute, [this, &words] { return begin_along(words); });
        if (Result<void> loaded = co_await std::move(loading); !loaded) {
            co_return loaded;
        }
        const bool asks = run_.spec.has_teacher() && run_.resumed.step < run_.total_steps;
        if (asks && run_.leads_host()) {
            if (Result<void> connected = co_await connect_teachers(); !connected) {
                co_return connected;
            }
        }
        auto exchanging = on(executors_.compute, [this] { return exchange_teacher_places(run_); });
        if (Result<void> exchanged = co_await std::move(exchanging); !exchanged) {
            co_return exchanged;
        }
        if (asks && !run_.leads_host()) {
            if (Result<void> connected = co_await connect_teachers(); !connected) {
                co_return connected;
            }
        }
        co_return control_.cancelled() ? Result<void>(stopped_on_request()) : Result<void>();
    }

  private:
    using Step = std::function<Result<void>()>;

    /// Runs the step on its executor. Once the run is to stop, the step is not begun, and its result does not count.
    asio::awaitable<Result<void>> on(asio::any_io_executor executor, Step step) {
        if (control_.cancelled()) {
            co_return stopped_on_request();
        }
        Result<void> done = co_await run_on(std::move(executor), std::move(step));
        co_return done;
    }

    void info(const std::string& message) const { emit_(LogEvent{"info", message}); }
    void warn(const std::string& message) const { emit_(LogEvent{"warn", message}); }

    /// Before the student and the data are loaded: keeps the earlier arithmetic, not what is fast here, and the earlier
    /// handling of long documents.
    void keep_decisions(bool ordered) {
        open_ = run_.spec;
        if (const auto kept = decisions_to_keep(checkpoint_store(run_.spec), run_.spec, ordered)) {
            run_.spec.student.dtype = kept->student.dtype;
            run_.spec.dataset.overflow = kept->dataset.overflow;
            keeps_ = true;
        }
        run_.spec.dataset.overflow = effective_overflow(run_.spec.dataset);
    }

    Result<void> begin_along(const std::string& words) {
        const Result<std::string> identity = read_words_to_ranks(words, run_);
        if (!identity) {
            return identity.error();
        }
        for (const Step& step : {Step([this] { return load_student(); }), Step([this] { return load_data(); }),
                                 Step([&] { return check_run_identity(*identity, run_.spec, run_.data_hash); }),
                                 Step([this] { return run_.resumed_from.empty() ? Result<void>() : restore_along(); }),
                                 Step([this] { return settle_replicas(run_, emit_); })}) {
            if (Result<void> done = step(); !done) {
                return done;
            }
        }
        return settle_steps(run_, emit_);
    }

    Result<void> restore_along() {
        Result<RunState> state = run_.student->restore(run_.resumed_from);
        if (!state) {
            return state.error();
        }
        run_.planned_batch_size = planned_batch_size(state->spec_json);
        run_.resumed = std::move(*state);
        return {};
    }

    /// Does not resume from the checkpoints that decided how student and data were loaded.
    Result<void> load_anew() {
        run_.student.reset();
        run_.spec.student.dtype = open_.student.dtype;
        run_.spec.dataset.overflow = effective_overflow(open_.dataset);
        if (Result<void> loaded = load_student(); !loaded) {
            return loaded;
        }
        if (Result<void> loaded = load_data(); !loaded) {
            return loaded;
        }
        run_.student->set_export_tokenizer(export_tokenizer_);
        return try_first_rows(run_);
    }

    Result<void> load_student() {
        if (Result<void> fit = check_ranks(run_.ranks, run_.spec); !fit) {
            return fit;
        }
        // Checkpoints name the device itself, so that a run that resumes elsewhere can warn.
        Result<std::string> device = models::device_name(run_.spec.student.device);
        if (!device) {
            return device.error();
        }
        run_.spec.student.device = std::move(*device);
        // The arithmetic decides weights, so checkpoints name it too. A teacher's can wait for the checkpoint.
        if (Result<void> settled = settle(arithmetics_of(run_.spec).front(), dtype_here); !settled) {
            return settled;
        }
        Result<std::unique_ptr<Student>> made =
            run_.spec.student.format == StudentFormat::torchscript
                ? models::make_torchscript_student(run_.spec.student, run_.spec.training)
                : make_language_model();
        if (!made) {
            return made.error();
        }
        run_.student = std::move(*made);
        return {};
    }

    Result<std::unique_ptr<Student>> make_language_model() const {
        models::CausalLmStudentOptions options;
        options.student = run_.spec.student;
        options.training = run_.spec.training;
        options.with_teacher = run_.spec.has_teacher();
        options.sequence_length = run_.spec.dataset.sequence_length;
        Result<std::unique_ptr<models::DeviceMemory>> memory = models::make_device_memory(run_.spec.student.device);
        if (!memory) {
            return memory.error();
        }
        options.max_bytes = (*memory)->total_bytes();
        options.on_warning = [this](const std::string& text) { warn(text); };
        options.ranks = run_.ranks;
        return models::make_causal_lm_student(options);
    }

    Result<void> load_data() {
        Result<ExportTokenizer> tokenizer = distilld::load_data(
            run_, [this](const std::string& text) { info(text); }, [this](const std::string& text) { warn(text); },
            [this] { return control_.cancelled(); });
        if (!tokenizer) {
            return tokenizer.error();
        }
        export_tokenizer_ = std::move(*tokenizer);
        return {};
    }

    asio::awaitable<Result<void>> take_folders() {
        std::vector<std::filesystem::path> folders{run_.spec.output, checkpoint_store(run_.spec).folder()};
        Result<std::vector<FolderFence>> taken =
            co_await distilld::take_folders(std::move(folders), run_.attempt, executors_, control_, emit_);
        if (!taken) {
            co_return taken.error();
        }
        run_.fences = std::move(*taken);
        co_return Result<void>();
    }

    /// Starts from this run's newest checkpoint or from step 0; refuses another run's.
    Result<void> begin_or_go_on(bool ordered) {
        const models::CheckpointStore store = checkpoint_store(run_.spec);
        const std::string& hash = run_.data_hash;
        const Result<StartingPoint> start = find_starting_point(store, run_.spec, hash, ordered);
        if (!start) {
            return start.error();
        }
        if (Result<void> ours = check_output(run_.spec.output, run_.spec, hash); !ours) {
            return ours;
        }
        for (const std::string& warning : start->warnings) {
            warn(warning);
        }
        run_.replaces_checkpoints = start->replaces;
        run_.damaged_checkpoints = start->damaged;
        if (keeps_ && !start->resume_from) {
            if (Result<void> loaded = load_anew(); !loaded) {
                return loaded;
            }
        }
        if (Result<void> settled = settle(run_.spec, dtype_here); !settled) {
            return settled;
        }
        if (start->resume_from) {
            if (Result<void> gone_on = go_on(*start->resume_from); !gone_on) {
                return gone_on;
            }
        } else if (ordered && !start->replaces) {
            info("nothing to resume in " + store.folder().string() + ": starting from step 0");
        }
        const std::string warning = space_warning(store.folder(), checkpoint_bytes(run_.student->parameter_count()),
                                                  free_bytes(store.folder()));
        if (!warning.empty()) {
            warn(warning);
        }
        return {};
    }

    Result<void> go_on(const std::filesystem::path& checkpoint) {
        Result<RunState> state = run_.student->restore(checkpoint);
        if (!state && run_.spec.overwrite && state.error().kind == ErrorKind::invalid_input) {
            run_.replaces_checkpoints = true;  // of another network
            return {};
        }
        if (!state) {
            return state.error();
        }
        for (const auto& warning :
             last_bits_warnings(state->spec_json, run_.spec, api::spec_table(), run_environment_of(run_))) {
            warn(warning);
        }
        info("resumed from " + checkpoint.string());
        for (const std::string& kept : kept_arithmetics(run_.spec, left_open_, dtype_here)) {
            info(kept);
        }
        run_.planned_batch_size = planned_batch_size(state->spec_json);
        run_.resumed = std::move(*state);
        run_.resumed_from = checkpoint.string();
        return {};
    }

    Result<void> recognise_teacher() {
        const Result<std::string> told = check_teacher(run_.resumed.spec_json, run_.spec, run_environment_of(run_));
        if (!told) {
            return invalid_input(run_.resumed_from + ": " + told.error().message);
        }
        if (!told->empty()) {
            warn(*told);
        }
        return {};
    }

    /// The last thing before the run: nothing can refuse it any more.
    Result<void> remove_replaced() {
        models::CheckpointStore store = checkpoint_store(run_.spec, run_.checkpoint_fence());
        warn("the checkpoints of an earlier run in " + store.folder().string() + " are removed: overwrite is true");
        return store.clear();
    }

    /// Removes tokens of earlier data, which nothing reads any more: the output folder is ours now.
    Result<void> sweep_tokens() {
        if (run_.tokens) {
            run_.tokens->sweep();
        }
        return {};
    }

    /// The run keeps what its teachers send, and the student gets the head for it.
    asio::awaitable<Result<void>> connect_teachers() {
        TeachersWish wish;
        wish.specs = run_.spec.teachers;
        wish.batch_rows = run_.spec.training.batch_size;
        wish.data = stored_data(run_, run_.dataset.get());
        wish.mixed = run_.mixed.get();
        wish.local = models::local_models(run_.spec.student.device);
        if (FolderFence* fence = run_.output_fence()) {
            wish.guard = [fence](const std::function<Result<void>()>& change) { return fence->commit(change); };
        }
        if (!run_.teachers.empty() && run_.teacher_tokenizer) {
            run_.teachers.front().source->close();  // it maps tokens already: another one is made
        } else if (!run_.teachers.empty()) {
            wish.probed = std::move(run_.teachers.front().source);  // probed for its head, before the batch size was
                                                                    // known
        }
        if (Result<void> shared = share_on_host(run_, wish, executors_); !shared) {
            co_return shared;
        }
        Result<std::vector<ConnectedTeacher>> connected =
            co_await distilld::connect_teachers(std::move(wish), executors_, control_, emit_);
        if (!connected) {
            co_return connected.error();
        }
        run_.teachers = std::move(*connected);
        if (Result<void> served = serve_host(run_); !served) {
            co_return served;
        }
        for (ConnectedTeacher& teacher : run_.teachers) {
            run_.spec.teachers.at(teacher.name).targets = choice_of(teacher.info.kind);
            const auto head = std::exchange(teacher.info.head, nullptr);
            if (head == nullptr) {
                continue;
            }
            auto taking = on(executors_.compute, [this, head] { return run_.student->set_teacher_head(*head); });
            if (Result<void> taken = co_await std::move(taking); !taken) {
                co_return taken;
            }
        }
        co_return Result<void>();
    }

    PreparedRun& run_;
    GraphExecutors executors_;
    RunControl& control_;
    EmitEvent emit_;
    ExportTokenizer export_tokenizer_;
    std::set<std::string> left_open_;  ///< dtypes that the spec leaves to the machine, by their pointers
    JobSpec open_;                     ///< as given
    bool keeps_ = false;               ///< what the spec left open comes from a checkpoint
};

}  // namespace

asio::awaitable<Result<void>> prepare(PreparedRun& run, bool resume, GraphExecutors executors, RunControl& control,
                                      EmitEvent emit) {
    Preparation preparation(run, std::move(executors), control, std::move(emit));
    co_return co_await preparation.perform(resume);
}

asio::awaitable<Result<void>> prepare_along(PreparedRun& run, std::string words, GraphExecutors executors,
                                            RunControl& control, EmitEvent emit) {
    Preparation preparation(run, std::move(executors), control, std::move(emit));
    co_return co_await preparation.perform_along(std::move(words));
}

}  // namespace distilld

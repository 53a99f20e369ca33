#include "server/worker/rollout/rollout_run.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "base/random_hex.hpp"
#include "models/weights/probe_adapter.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/core/teacher_name.hpp"
#include "pipeline/teacher/rollout/replayed_rollouts.hpp"
#include "pipeline/teacher/rollout/rollout_servers.hpp"
#include "server/worker/machine/disk_space.hpp"
#include "server/worker/preparation.hpp"
#include "server/worker/resume_identity.hpp"
#include "server/worker/run_folders.hpp"
#include "server/worker/run_plan.hpp"
#include "server/worker/teacher/teacher_connection.hpp"

namespace distilld {

namespace asio = boost::asio;
namespace fs = std::filesystem;

namespace {

constexpr const char* kWeights = "rollout";
constexpr const char* kKept = "rollouts.jsonl";
constexpr std::uint32_t kMaxAtOnce = 64;  ///< micro-batches
/// Of the run, and of the fence's holder, in the adapters' names: another attempt has another holder.
constexpr std::size_t kNameDigits = 8;

/// How the servers are asked, as settings of a teacher.
TeacherSpec asking(const RolloutSpec& rollout, std::uint32_t at_once) {
    TeacherSpec spec;
    spec.endpoints = rollout.endpoints;
    spec.max_concurrent = {false, at_once};
    spec.timeout_secs = rollout.timeout_secs;
    spec.patience_secs = rollout.patience_secs;
    return spec;
}

RolloutPlan plan_of(const PreparedRun& run) {
    const JobSpec& spec = run.spec;
    RolloutPlan plan;
    plan.steps = batch_plan(run).steps_of(spec.training.micro_batches);
    plan.rows = run.dataset->row_count();
    plan.batch_size = spec.training.batch_size;
    plan.ends_epochs = ends_epochs(run);
    plan.seed = spec.training.seed;
    plan.staleness = spec.rollout->staleness;
    plan.lmbda = spec.rollout->lmbda;
    plan.dataset_rows = run.stand_ins ? run.stand_ins->row_count() : 0;
    return plan;
}

/// Writes weights beside `folder`, and puts it there when it is whole.
template <class Write>
Result<void> put_weights(FolderFence& fence, const fs::path& folder, Write write) {
    const fs::path stage = folder.parent_path() / (".tmp-" + folder.filename().string() + "-" + fence.holder());
    Result<void> done = remove_tree(stage);
    done = done ? make_folders(stage) : done;
    done = done ? write(stage) : done;
    if (done) {
        done = fence.commit([&]() -> Result<void> {
            if (Result<void> removed = remove_tree(folder); !removed) {
                return removed;
            }
            return rename_entry(stage, folder);
        });
    }
    if (!done) {
        static_cast<void>(remove_tree(stage));  // the disk may be full; the first error counts
    }
    return done;
}

Result<void> write_model(const StudentSnapshot& snapshot, const fs::path& folder) {
    const Result<std::vector<fs::path>> written = snapshot.write_model(folder);
    return written ? Result<void>() : written.error();
}

/// The number in "v12".
std::optional<std::uint64_t> version_in(const std::string& name) {
    std::uint64_t version = 0;
    const char* const end = name.data() + name.size();
    const auto [behind, failed] = std::from_chars(name.data() + (name.empty() ? 0 : 1), end, version);
    return name.starts_with('v') && failed == std::errc() && behind == end ? std::optional(version) : std::nullopt;
}

/// Only the newest staleness + 2 write for steps that are still to come, also after a restart.
Result<void> remove_older(const fs::path& folder, std::uint64_t newest, std::uint64_t staleness) {
    const Result<std::vector<std::string>> names = names_in(folder);
    if (!names) {
        return names.error();
    }
    for (const std::string& name : *names) {
        const auto version = version_in(name);
        if (version && *version + staleness + 2 <= newest) {
            if (Result<void> removed = remove_tree(folder / name); !removed) {
                return removed;
            }
        }
    }
    return {};
}

Result<void> publish(PreparedRun& run, std::uint64_t steps, const StudentSnapshot& snapshot) {
    const fs::path& folder = run.rollout->folder;
    const std::string name = "v" + std::to_string(steps);
    const auto write = [&](const fs::path& stage) { return write_model(snapshot, stage); };
    const Result<void> put = put_weights(*run.output_fence(), folder / name, write);
    if (!put) {
        return explain_full_disk(put.error(), folder, "the weights of step " + std::to_string(steps),
                                 export_bytes(run.student->parameter_count()));
    }
    return remove_older(folder, steps, run.rollout->plan.staleness);
}

/// The beginning of the adapters' names: of this run in all its attempts.
Result<std::string> name_of_run(FolderFence& fence, const fs::path& folder) {
    const fs::path file = folder / "name";
    const Result<std::string> kept = read_text_file(file, kNameDigits);
    constexpr std::string_view kDigits = "0123456789abcdef";
    if (kept && kept->size() == kNameDigits && kept->find_first_not_of(kDigits) == std::string::npos) {
        return "distilld-" + *kept + "-";
    }
    const std::string name = random_hex(1);
    const Result<void> written = fence.commit([&] { return write_file_atomically(file, name); });
    return written ? Result<std::string>("distilld-" + name + "-") : written.error();
}

/// What the servers are asked to load before the first step.
Result<void> write_probe(PreparedRun& run, RolloutRun& rollout, const StudentSnapshot& snapshot) {
    FolderFence& fence = *run.output_fence();
    if (Result<void> made = make_folders(rollout.folder); !made) {
        return made;
    }
    Result<std::string> name = name_of_run(fence, rollout.folder);
    if (!name) {
        return name.error();
    }
    rollout.name = std::move(*name);
    const fs::path first = rollout.folder / "first";
    const auto write = [&](const fs::path& stage) { return write_model(snapshot, stage); };
    if (Result<void> put = put_weights(fence, first, write); !put) {
        return put;
    }
    const bool adapter = run.spec.student.lora.has_value();
    const auto derive = [&](const fs::path& stage) {
        return adapter ? models::write_probe_adapter(first, stage) : models::write_probe_model(first, stage);
    };
    const Result<void> put = put_weights(fence, rollout.folder / "probe", derive);
    return put && adapter ? remove_tree(first) : put;
}

Result<void> open_kept(PreparedRun& run, RolloutRun& rollout) {
    FolderFence& fence = *run.output_fence();
    const auto guard = [&fence](const std::function<Result<void>()>& change) { return fence.commit(change); };
    // Kept answers are of the weights that a checkpoint holds; a run from the start has others.
    const auto is_ours = [&run](const std::string& identity) {
        return !run.resumed_from.empty() && check_run_identity(identity, run.spec, run.data_hash).has_value();
    };
    Result<std::unique_ptr<KeptRollouts>> kept =
        KeptRollouts::open(fs::path(run.spec.output) / kKept, identity_of(run), is_ours, guard);
    if (!kept) {
        return kept.error();
    }
    rollout.kept = std::move(*kept);
    return {};
}

/// The answers of an earlier run, in place of servers.
Result<void> open_replay(PreparedRun& run, RolloutRun& rollout) {
    const RolloutSpec& spec = *run.spec.rollout;
    std::error_code absent;
    if (fs::equivalent(spec.replay, fs::path(run.spec.output) / kKept, absent)) {
        return invalid_input("/rollout/replay: " + spec.replay +
                             " is the file that this job writes: give another output");
    }
    const auto check = [&run](const std::string& identity) {
        return check_run_identity(identity, run.spec, run.data_hash);
    };
    Result<std::unique_ptr<KeptRollouts>> kept = KeptRollouts::open_other(spec.replay, check);
    if (!kept) {
        return Error{kept.error().kind, "/rollout/replay: " + kept.error().message};
    }
    rollout.servers = replayed_rollouts(std::move(*kept), spec.replay, spec.max_tokens, run.student->vocabulary_size());
    return {};
}

Result<void> prepare_files(PreparedRun& run, RolloutRun& rollout, const StudentSnapshot& snapshot) {
    const RolloutSpec& spec = *run.spec.rollout;
    const Result<void> done = spec.replay.empty() ? write_probe(run, rollout, snapshot) : open_replay(run, rollout);
    return done && spec.keep ? open_kept(run, rollout) : done;
}

}  // namespace

asio::awaitable<Result<void>> prepare_rollouts(PreparedRun& run, GraphExecutors executors, RunControl& control,
                                               EmitEvent emit) {
    if (!run.spec.rollout || run.resumed.step >= run.total_steps) {
        co_return Result<void>();
    }
    auto rollout = std::make_unique<RolloutRun>();
    rollout->plan = plan_of(run);
    rollout->folder = fs::absolute(fs::path(run.spec.output)) / kWeights;
    auto copy = [&run] { return run.student->snapshot(RunState()); };
    const std::shared_ptr<const StudentSnapshot> snapshot = co_await run_on(executors.compute, std::move(copy));
    auto write = [&] { return prepare_files(run, *rollout, *snapshot); };
    if (const Result<void> written = co_await run_on(executors.disk, std::move(write)); !written) {
        co_return written.error();
    }
    if (rollout->kept && rollout->kept->count() > 0) {
        emit(LogEvent{"info", "rollout: " + std::to_string(rollout->kept->count()) +
                                  " micro-batches of answers are kept in " + run.spec.output + "/" + kKept});
    }
    if (!run.spec.rollout->replay.empty()) {
        emit(LogEvent{"info", "rollout: answers are those of " + run.spec.rollout->replay});
        run.rollout = std::move(rollout);
        co_return Result<void>();
    }
    const auto hosts = teacher_hosts();
    if (!hosts) {
        co_return hosts.error();
    }
    RolloutServersOptions options;
    options.plan = rollout->plan;
    options.whole = !run.spec.student.lora;
    options.name_of_run = rollout->name;
    options.name = rollout->name + run.output_fence()->holder().substr(0, kNameDigits);
    options.folder = rollout->folder;
    const TokenBatch first = run.dataset->batch(0, {0});
    options.probe_prompt.assign(first.input_ids.begin(), first.input_ids.begin() + first.lengths.front());
    options.kept = rollout->kept;
    options.hosts = *hosts;
    options.on_warning = [emit](const std::string& text) { emit(LogEvent{"warn", "rollout: " + text}); };
    auto servers = make_rollout_servers(executors.io, executors.decoding(), *run.spec.rollout, std::move(options));
    if (!servers) {
        co_return servers.error();
    }
    rollout->servers = std::move(*servers);
    if (control.cancelled()) {
        co_return stopped_on_request();
    }
    emit(LogEvent{"info", "rollout: probing " + rollout->servers->endpoint_name(0) +
                              "; the job waits for a server that is not up yet"});
    auto probing = rollout->servers->probe(run.student->vocabulary_size());
    auto waiting = asio::co_spawn(executors.io, std::move(probing),
                                  asio::bind_cancellation_slot(control.cancel_slot(), asio::use_awaitable));
    Result<TeacherInfo> info = co_await std::move(waiting);
    if (!info) {
        co_return info.error().kind == ErrorKind::cancelled
            ? info.error()
            : Error{info.error().kind, said_of_teacher(kRolloutLane, info.error().message)};
    }
    rollout->info = std::move(*info);
    emit(LogEvent{"info", std::string("rollout: ") + (run.spec.student.lora ? "adapters" : "weights") +
                              " change the answers, " +
                              (rollout->info.deterministic ? "and the same seed repeats them"
                                                           : "but the same seed does not repeat them")});
    run.rollout = std::move(rollout);
    co_return Result<void>();
}

RolloutOptions rollout_options(PreparedRun& run, std::uint32_t decode_threads) {
    const RolloutSpec& spec = *run.spec.rollout;
    RolloutRun& rollout = *run.rollout;
    const std::uint64_t at_once = (rollout.plan.staleness + 1) * run.spec.training.micro_batches;
    RolloutOptions options;
    options.source = rollout.servers.get();
    options.asking = teacher_stage_options(
        asking(spec, static_cast<std::uint32_t>(std::min<std::uint64_t>(at_once, kMaxAtOnce))), *rollout.servers,
        rollout.info, run.spec.training.batch_size, run.spec.dataset.sequence_length, decode_threads);
    options.plan = rollout.plan;
    options.max_tokens = spec.max_tokens;
    options.dataset = run.stand_ins;
    if (run.shown_with) {
        options.text = [tokenizer = run.shown_with](const std::vector<std::int32_t>& ids) {
            return tokenizer->decode(ids);
        };
    }
    if (spec.replay.empty()) {
        options.publish = [&run](std::uint64_t steps, const StudentSnapshot& snapshot) {
            return publish(run, steps, snapshot);
        };
    }
    if (rollout.kept) {
        options.keep = [kept = rollout.kept](const RolloutStep& step) { return kept->append(step.answers); };
    }
    return options;
}

asio::awaitable<void> end_rollouts(PreparedRun& run, asio::any_io_executor disk, bool finished) {
    RolloutRun& rollout = *run.rollout;
    co_await rollout.servers->settle();
    rollout.servers->close();
    auto remove = [&] {
        // With staleness, a run of more steps would go on with the newest.
        const bool unused = finished && rollout.plan.staleness == 0;
        for (const char* part : {"probe", "first"}) {
            static_cast<void>(remove_tree(rollout.folder / part));
        }
        if (unused) {
            static_cast<void>(remove_tree(rollout.folder));
        }
    };
    co_await run_on(std::move(disk), std::move(remove));
}

}  // namespace distilld

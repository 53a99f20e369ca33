#include "server/worker/teacher/teacher_connection.hpp"

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/async/tuple.hpp"
#include "pipeline/store/store_reader.hpp"
#include "pipeline/store/store_writer.hpp"
#include "pipeline/teacher/caching_teacher.hpp"
#include "pipeline/teacher/document_teacher.hpp"
#include "pipeline/teacher/lazy_teacher.hpp"
#include "pipeline/teacher/probe/teacher_fingerprint.hpp"
#include "pipeline/teacher/store_teacher.hpp"
#include "server/worker/run_folders.hpp"
#include "server/worker/teacher/teacher_vocabulary.hpp"
#include "server/worker/teacher/teacher_wait.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::milliseconds kStorePoll{500};

class Connection {
  public:
    Connection(TeacherWish wish, GraphExecutors executors, RunControl& control, EmitEvent emit)
        : wish_(std::move(wish)), executors_(std::move(executors)), control_(control), emit_(std::move(emit)) {}

    /// `stored`: the answers go into a store, which cannot keep hidden states.
    asio::awaitable<Result<ConnectedTeacher>> endpoints(bool stored) {
        if (control_.cancelled()) {
            co_return stopped_on_request();
        }
        if (stored && wish_.spec.targets == TargetsChoice::automatic && wish_.spec.top_k == 0) {
            wish_.spec.targets = TargetsChoice::logits;
        }
        ConnectedTeacher connected;
        const bool again = wish_.probed != nullptr;
        if (again) {
            connected.source = std::move(wish_.probed);
            connected.source->expect_batches(wish_.batch_rows, wish_.data.sequence_length);
        } else {
            Result<std::unique_ptr<TeacherSource>> made = local_model_of(wish_.spec).empty() ? remote() : local();
            if (!made) {
                co_return made.error();
            }
            connected.source = std::move(*made);
        }
        TeacherSource& teacher = *connected.source;
        Result<TeacherInfo> probed =
            co_await asio::co_spawn(executors_.io, teacher.probe(wish_.data.vocabulary),
                                    asio::bind_cancellation_slot(control_.cancel_slot(), asio::use_awaitable));
        if (wait_) {
            wait_->end(probed && !control_.cancelled());
        }
        if (control_.cancelled()) {
            co_return stopped_on_request();
        }
        if (!probed) {
            co_return probed.error();
        }
        connected.info = std::move(*probed);
        const EmitEvent tell = again ? EmitEvent([](const WorkerEvent&) {}) : emit_;
        if (Result<void> same = compare_tokenizers(connected, wish_.spec, wish_.data, tell); !same) {
            co_return same.error();
        }
        connected.asked = connected.source.get();
        for (const std::size_t endpoint : connected.info.absent) {
            warn(teacher.endpoint_name(endpoint) +
                 ": not up; the job starts without this endpoint, which joins when it is");
        }
        if (!connected.info.deterministic) {
            warn(
                "the teacher answered the same request with different bytes: weights will not be reproducible bit "
                "for bit");
        }
        co_return connected;
    }

    asio::awaitable<Result<ConnectedTeacher>> endpoints_or_store() {
        const TeacherSpec& spec = wish_.spec;
        const bool alone = !can_be_asked(spec);
        const bool reads = alone || spec.cache == TeacherCache::read || spec.cache == TeacherCache::readwrite;
        const bool writes = !alone && (spec.cache == TeacherCache::write || spec.cache == TeacherCache::readwrite);
        if (spec.store.empty() || (!reads && !writes)) {
            co_return co_await endpoints(false);
        }
        Result<std::shared_ptr<StoreReader>> opened = co_await open_reader(alone);
        if (!opened) {
            co_return opened.error();
        }
        std::shared_ptr<StoreReader> reader = std::move(*opened);
        if (!reader && !writes) {
            co_return invalid_input("/teacher/store: there is no store in " + spec.store);
        }
        const std::uint64_t sealed = reader ? reader->sealed_rows() : 0;
        const bool complete = reader && sealed == reader->manifest().rows;
        if (alone) {
            co_return co_await store_alone(std::move(reader));
        }
        if (reads && complete) {
            info(spec.store + " holds all answers: the teacher is not asked");
            co_return co_await store_before_endpoints(std::move(reader));
        }
        Result<ConnectedTeacher> connected = co_await endpoints(true);
        if (!connected) {
            co_return connected.error();
        }
        co_return co_await with_cache(std::move(*connected), std::move(reader), reads, writes);
    }

  private:
    Result<std::unique_ptr<TeacherSource>> remote() {
        const TeacherSpec& spec = wish_.spec;
        RemoteTeacherOptions options;
        Result<HostRule> hosts = teacher_hosts();
        if (!hosts) {
            return hosts.error();
        }
        options.hosts = wish_.bearer.empty() ? std::move(*hosts) : HostRule();  // another rank is on this host
        options.bearer = wish_.bearer;
        options.start_deadline = from_seconds(spec.startup_timeout_secs.value_or(spec.patience_secs));
        options.max_retry_after = from_seconds(spec.max_retry_after_secs);
        // Shared with the teacher, which outlives this call.
        wait_ =
            std::make_shared<TeacherWait>(emit_, "no endpoint of the teacher is up yet; last: ", "the teacher is up");
        options.on_waiting = [wait = wait_](const std::string& text) {
            if (!text.empty()) {  // the probe reports how it ended
                wait->on_waiting(text);
            }
        };
        options.batch_rows = wish_.batch_rows;
        options.batch_columns = wish_.data.sequence_length;
        if (!spec.outputs.empty()) {
            options.samples = first_sample();
        }
        options.on_warning = warning();
        Result<std::unique_ptr<TeacherSource>> made =
            make_remote_teacher(executors_.io, executors_.decode, spec, std::move(options));
        if (made) {
            std::string where = (*made)->endpoint_name(0);
            if ((*made)->endpoint_count() > 1) {
                where += " and " + std::to_string((*made)->endpoint_count() - 1) + " more";
            }
            info("asking the teacher at " + where + "; the job waits for a teacher that is not up yet");
        }
        return made;
    }

    Result<std::unique_ptr<TeacherSource>> local() const {
        const TeacherSpec& spec = wish_.spec;
        if (spec.module.empty() ? !wish_.local.model : !wish_.local.module) {
            return Error{ErrorKind::internal, "/teacher: this program cannot load " + local_model_of(spec)};
        }
        models::LocalTeacherOptions options;
        options.batch_columns = wish_.data.sequence_length;
        options.on_warning = warning();
        options.thread = wish_.local.thread;
        info("loading the teacher of " + local_model_of(spec));
        if (spec.module.empty()) {
            return models::make_local_teacher(executors_.io, spec, wish_.local.model, std::move(options));
        }
        options.samples = first_sample();
        return models::make_module_teacher(executors_.io, spec, wish_.local.module, std::move(options));
    }

    [[nodiscard]] std::shared_ptr<const TokenBatch> first_sample() const {
        return std::make_shared<const TokenBatch>(wish_.data.dataset->batch(0, {0}));
    }

    void info(const std::string& message) const { emit_(LogEvent{"info", message}); }
    void warn(const std::string& message) const { emit_(LogEvent{"warn", message}); }
    [[nodiscard]] std::function<void(const std::string&)> warning() const {
        return [emit = emit_](const std::string& text) { emit(LogEvent{"warn", text}); };
    }

    /// The existing store, if it is for our data; null: there is none. Waits for a store that is the only source: its
    /// writer may not have begun.
    asio::awaitable<Result<std::shared_ptr<StoreReader>>> open_reader(bool wait_for_it) {
        const std::string folder = wish_.spec.store;
        TeacherWait wait(emit_, "", "there is a store in " + folder);
        const auto outage_timeout = std::chrono::nanoseconds(from_seconds(wish_.spec.patience_secs));
        const auto give_up = std::chrono::steady_clock::now() + outage_timeout;
        asio::steady_timer pause(executors_.io);
        struct Seen {
            bool exists = false;
            std::optional<std::string> refusal;
        };
        std::function<Seen()> look = [folder] { return Seen{store_exists(folder), no_store_reason(folder)}; };
        for (bool told = false;; told = true) {
            const Seen seen = co_await run_on(executors_.disk, look);
            if (seen.refusal) {
                co_return invalid_input("/teacher/store: " + *seen.refusal);
            }
            if (!seen.exists && !wait_for_it) {
                co_return std::shared_ptr<StoreReader>();
            }
            if (seen.exists) {
                wait.end();
                break;
            }
            if (control_.cancelled()) {
                co_return stopped_on_request();
            }
            if (std::chrono::steady_clock::now() >= give_up) {
                co_return invalid_input("/teacher/store: there is no store in " + folder +
                                        " (/teacher/patience_secs is over)");
            }
            if (!told) {
                wait.on_waiting("there is no store in " + folder + " yet; a generate job must begin it");
            }
            pause.expires_after(kStorePoll);
            co_await pause.async_wait(kTuple);
        }
        std::function<Result<std::shared_ptr<StoreReader>>()> open = [this] { return open_checked(); };
        Result<std::shared_ptr<StoreReader>> opened = co_await run_on(executors_.disk, std::move(open));
        if (opened) {
            for (const auto& [number, defect] : (*opened)->damaged()) {
                warn("/teacher/store: " + defect + (wait_for_it ? "" : "; the teacher is asked for its rows"));
            }
        }
        co_return opened;
    }

    Result<std::shared_ptr<StoreReader>> open_checked() const {
        Result<std::unique_ptr<StoreReader>> opened = open_store_reader(wish_.spec.store);
        if (!opened) {
            return Error{opened.error().kind, "/teacher/store: " + opened.error().message};
        }
        if (const Result<void> ours = check_store((*opened)->manifest(), wish_of(wish_.spec, wish_.data)); !ours) {
            return ours.error();
        }
        return std::shared_ptr<StoreReader>(std::move(*opened));
    }

    asio::awaitable<Result<ConnectedTeacher>> store_alone(std::shared_ptr<StoreReader> reader) {
        StoreTeacherOptions options;
        options.outage_timeout = std::chrono::nanoseconds(from_seconds(wish_.spec.patience_secs));
        auto wait = std::make_shared<TeacherWait>(emit_, "", wish_.spec.store + ": the rows are there");
        options.on_waiting = [wait](const std::string& text) { text.empty() ? wait->end() : wait->on_waiting(text); };
        ConnectedTeacher connected;
        connected.source = make_store_teacher(executors_.io, executors_.disk, std::move(reader), std::move(options));
        Result<TeacherInfo> probed = co_await connected.source->probe(wish_.data.vocabulary);
        if (!probed) {
            co_return probed.error();
        }
        connected.info = std::move(*probed);
        if (Result<void> same = compare_tokenizers(connected, wish_.spec, wish_.data, emit_); !same) {
            co_return same.error();
        }
        co_return connected;
    }

    /// For a complete store: the endpoints are probed only when one of its rows is damaged.
    asio::awaitable<Result<ConnectedTeacher>> store_before_endpoints(std::shared_ptr<StoreReader> reader) {
        Result<ConnectedTeacher> connected = co_await store_alone(reader);
        if (!connected) {
            co_return connected;
        }
        ConnectTeacher connect = [spec = wish_.spec, rows = wish_.batch_rows, data = wish_.data, local = wish_.local,
                                  executors = executors_, &control = control_, emit = emit_, reader] {
            return teacher_of_store(TeacherWish{spec, rows, data, local}, executors, control, emit, reader);
        };
        const std::string& local = local_model_of(wish_.spec);
        std::vector<std::string> names = local.empty() ? wish_.spec.endpoints : std::vector{local};
        CachingTeacherOptions options;
        options.reader = std::move(reader);
        options.on_warning = warning();
        auto lazy = make_lazy_teacher(executors_.io, std::move(names), std::move(connect));
        connected->asked = lazy.get();
        connected->asked_in_need = true;
        connected->source = make_caching_teacher(executors_.io, std::move(lazy), std::move(options));
        co_return connected;
    }

    static asio::awaitable<Result<std::unique_ptr<TeacherSource>>> teacher_of_store(
        TeacherWish wish, GraphExecutors executors, RunControl& control, EmitEvent emit,
        std::shared_ptr<StoreReader> reader) {
        Connection connection(std::move(wish), std::move(executors), control, std::move(emit));
        Result<ConnectedTeacher> connected = co_await connection.endpoints(true);
        if (!connected) {
            co_return connected.error();
        }
        if (Result<void> same = connection.check_teacher(*reader, *connected); !same) {
            co_return same.error();
        }
        co_return std::move(connected->source);
    }

    [[nodiscard]] Result<void> check_teacher(const StoreReader& reader, const ConnectedTeacher& connected) const {
        if (same_teacher(reader.manifest().teacher, connected.info.fingerprint)) {
            return {};
        }
        return invalid_input("/teacher/store: what is in " + wish_.spec.store + " is another teacher's (" +
                             reader.manifest().teacher_name + "), not " + connected.info.description);
    }

    asio::awaitable<Result<ConnectedTeacher>> with_cache(ConnectedTeacher connected,
                                                         std::shared_ptr<StoreReader> reader, bool reads, bool writes) {
        CachingTeacherOptions options;
        options.reads = reads;
        options.on_warning = warning();
        if (writes) {
            std::function<Result<std::shared_ptr<StoreWriter>>()> open = [this, &connected] {
                StoreWriterOptions alone;
                alone.guard = wish_.guard;
                return open_writer(wish_.spec, wish_.data, connected.info, std::move(alone));
            };
            Result<std::shared_ptr<StoreWriter>> opened = co_await run_on(executors_.disk, std::move(open));
            if (opened) {
                options.writer = std::move(*opened);
            } else if ((opened.error().kind == ErrorKind::io || opened.error().kind == ErrorKind::disk_full) &&
                       reader) {
                warn(opened.error().message + "; this run reads from the store and does not write");
            } else {
                co_return opened.error();
            }
        }
        if (!options.writer) {
            if (Result<void> same = check_teacher(*reader, connected); !same) {
                co_return same.error();
            }
            options.reader = std::move(reader);
        }
        options.disk = executors_.disk;
        connected.source = make_caching_teacher(executors_.io, std::move(connected.source), std::move(options));
        co_return connected;
    }

    TeacherWish wish_;
    GraphExecutors executors_;
    RunControl& control_;
    EmitEvent emit_;
    std::shared_ptr<TeacherWait> wait_;  ///< for endpoints; shared with the teacher
};

/// Names the field that bounds what this teacher reads.
Error about_length(Error error, const StoredData& data) {
    constexpr std::string_view kField = "/dataset/sequence_length";
    if (data.dataset->teacher_documents() != nullptr && error.message.starts_with(kField)) {
        error.message.replace(0, kField.size(), "/dataset/teacher_sequence_length");
    }
    return error;
}

Result<ConnectedTeacher> by_document(Result<ConnectedTeacher> connected, const StoredData& data,
                                     OnAlignment on_first = {}) {
    if (!connected) {
        return about_length(connected.error(), data);
    }
    if (data.whole_documents) {
        connected->source = make_document_teacher(std::move(connected->source), data.sequence_length,
                                                  read_of_teacher(*data.dataset), data.alignment, std::move(on_first));
    }
    return connected;
}

}  // namespace

Result<std::shared_ptr<StoreWriter>> open_writer(const TeacherSpec& spec, const StoredData& data,
                                                 const TeacherInfo& info, StoreWriterOptions options) {
    options.same_teacher = same_teacher;
    options.leases.expiry = lease_expiry(spec);
    Result<std::unique_ptr<StoreWriter>> opened =
        open_store_writer(spec.store, wanted_manifest(spec, data, info), std::move(options));
    if (!opened) {
        return Error{opened.error().kind, "/teacher/store: " + opened.error().message};
    }
    return std::shared_ptr<StoreWriter>(std::move(*opened));
}

asio::awaitable<Result<ConnectedTeacher>> connect_endpoints(TeacherWish wish, GraphExecutors executors,
                                                            RunControl& control, EmitEvent emit) {
    const StoredData data = wish.data;
    Connection connection(std::move(wish), std::move(executors), control, std::move(emit));
    Result<ConnectedTeacher> connected = co_await connection.endpoints(true);
    co_return by_document(std::move(connected), data);
}

asio::awaitable<Result<ConnectedTeacher>> connect_teacher(TeacherWish wish, GraphExecutors executors,
                                                          RunControl& control, EmitEvent emit) {
    const StoredData data = wish.data;
    const TeacherSpec spec = wish.spec;
    const EmitEvent tell = wish.probed == nullptr ? emit : EmitEvent([](const WorkerEvent&) {});
    OnAlignment on_first = telling_of_alignment(executors.io, emit);
    Connection connection(std::move(wish), std::move(executors), control, std::move(emit));
    Result<ConnectedTeacher> connected = co_await connection.endpoints_or_store();
    co_return by_document(fit_to_student(std::move(connected), spec, data, tell), data, std::move(on_first));
}

Result<HostRule> teacher_hosts() {
    const char* listed = std::getenv(kTeacherHostsVariable);
    Result<HostRule> hosts = HostRule::parse(listed != nullptr ? listed : "");
    if (!hosts) {
        return Error{hosts.error().kind, std::string(kTeacherHostsVariable) + ": " + hosts.error().message};
    }
    return hosts;
}

TeacherStageOptions teacher_stage_options(const TeacherSpec& teacher, const TeacherSource& source,
                                          const TeacherInfo& info, std::uint32_t rows, std::uint32_t columns,
                                          std::uint32_t decode_threads) {
    TeacherStageOptions options;
    SchedulerOptions& scheduler = options.scheduler;
    scheduler.endpoints = static_cast<std::uint32_t>(source.endpoint_count());
    scheduler.limit.adaptive = teacher.max_concurrent.automatic;
    scheduler.limit.ceiling = teacher.max_concurrent.limit;
    const bool local = !local_model_of(teacher).empty();
    if (local) {
        scheduler.limit.adaptive = false;
        scheduler.limit.ceiling = std::min(scheduler.limit.ceiling, models::kLocalRequests);
    }
    const AnswerSize expected = source.answer_size(rows, columns);
    scheduler.window.size = teacher.window;
    scheduler.window.max_bytes = teacher.window_bytes;
    scheduler.window.expected = {expected.held_bytes, expected.max_wire_bytes.value_or(0)};
    scheduler.window.decoders = decode_threads;
    scheduler.window.decode_bytes = expected.decode_bytes;
    scheduler.retry.max_retries = teacher.max_retries;
    scheduler.retry.outage_timeout = from_seconds(teacher.patience_secs);
    scheduler.breaker.max_hold = from_seconds(teacher.max_retry_after_secs);
    scheduler.hedge.enabled = teacher.hedge && !local && source.is_slow_by_chance();
    // A model in the process has no deadline, even if another rank's process has it.
    options.deadline = local ? std::chrono::nanoseconds(models::kLocalDeadline)
                             : std::chrono::nanoseconds(from_seconds(teacher.timeout_secs));
    options.names_silence = can_be_asked(teacher) && !local;
    options.absent_endpoints = info.absent;
    options.absent_endpoints.insert(options.absent_endpoints.end(), info.refused.begin(), info.refused.end());
    return options;
}

}  // namespace distilld

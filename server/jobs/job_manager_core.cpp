#include "server/jobs/job_manager_core.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>
#include <variant>

#include "api/job_spec_json.hpp"
#include "base/scope_exit.hpp"
#include "server/jobs/awaited_stores.hpp"
#include "server/jobs/checks/spec_claims.hpp"
#include "server/jobs/store/event_records.hpp"
#include "server/jobs/task_array.hpp"
#include "server/security/path_rule.hpp"
#include "server/support/failure_logger.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using std::chrono::steady_clock;

constexpr const char* kComponent = "jobs";

/// The claims of a job: those of its resolved spec or, if that is not valid, at least its output.
PathClaims claims_of_job(const api::Job& job, const std::shared_ptr<const JobSpec>& spec) {
    PathClaims claims;
    claims.owner = job.owner_id;
    claims.array = array_of(job);
    if (spec) {
        claims.paths = claims_now(*spec);
    } else if (!job.output.empty()) {
        claims.paths.push_back(
            {resolved_path(job.output).value_or(job.output).string(), api::PathUse::writes, "/output"});
    }
    return claims;
}

constexpr std::chrono::seconds kNodesInterval{15};

bool tells_of_a_sealed_shard(const WorkerEvent& event) {
    const auto* progress = std::get_if<ProgressEvent>(&event);
    return progress != nullptr && progress->generates && progress->fetch.store &&
           progress->fetch.store->sealed_rows > 0;
}

/// Makes the table's form of an unfinished job from the store, when the service starts.
RestoredJob restored_job(const StoredJob& stored, bool outlives_service) {
    const auto& job = stored.job;
    RestoredJob restored{job.id, claims_of_job(job, stored.spec)};
    restored.begun = !job.started_at.empty();
    const bool pausing = job.state == api::JobState::pausing;
    restored.running = pausing || job.state == api::JobState::running;
    const bool resumed = pausing && job.status_reason && job.status_reason->code == kResumedByUser;
    restored.paused = job.state == api::JobState::paused || (pausing && !resumed);
    restored.cancel_requested = job.cancel_requested;
    restored.adopted = outlives_service && restored.running && !stored.attempt_token.empty();
    restored.resumed = resumed;
    restored.resume = stored.resume;
    restored.held = job.status_reason && job.status_reason->code == kWaitingForStore;
    restored.place = {job.priority, stored.number};
    return restored;
}

}  // namespace

JobManager::JobManager(JobManagerOptions options, std::unique_ptr<JobStore> store, std::unique_ptr<Launcher> launcher,
                       std::shared_ptr<JobMetrics> metrics)
    : core_(std::make_unique<Core>(std::move(options), std::move(store), std::move(launcher), std::move(metrics))) {
    core_->begin_thread();
}

JobManager::~JobManager() = default;

asio::awaitable<void> JobManager::start() {
    return core_->on_thread([core = core_.get()] { core->start(); });
}

asio::awaitable<void> JobManager::stop() {
    co_await asio::co_spawn(core_->io, core_->stop(), asio::use_awaitable);
}

asio::awaitable<void> JobManager::answer() {
    return core_->on_thread([] {});
}

asio::awaitable<bool> JobManager::ready() {
    return core_->on_thread([core = core_.get()] { return core->is_ready(); });
}

asio::awaitable<Result<std::vector<Node>>> JobManager::nodes() {
    co_return co_await asio::co_spawn(core_->io, core_->nodes(), asio::use_awaitable);
}

std::optional<api::StatusReason> JobManager::store_trouble() const {
    return core_->journal.live_jobs().trouble();
}

JobManager::Core::Core(JobManagerOptions options_in, std::unique_ptr<JobStore> store,
                       std::unique_ptr<Launcher> launcher_in, std::shared_ptr<JobMetrics> metrics_in)
    : options(std::move(options_in)),
      launcher(std::move(launcher_in)),
      journal(
          std::move(store), options.metrics_kept, [this](const std::string& id) { waiters.wake(id); },
          JobJournal::kMessagesKept, [this] { retry_later(); }),
      metrics(std::move(metrics_in)),
      reader(journal.open_reader()),
      history_reader(journal.open_reader()),
      table({options.slots, options.cancel_grace, options.restarts, options.stop_limit, options.max_queued}),
      work(asio::make_work_guard(io)),
      waiters(io.get_executor()),
      running(io.get_executor(), disk.get_executor(), *launcher, options, journal, *metrics,
              {[this](const std::string& id, const WorkerEvent& event) {
                   if (std::holds_alternative<WaitingEvent>(event) || std::holds_alternative<StartedEvent>(event)) {
                       show_counts();
                   }
                   retry_later();
                   if (tells_of_a_sealed_shard(event) && table.on_sealed(id)) {
                       pump();
                   }
               },
               [this](const std::string& id, const WorkerOutcome& outcome) {
                   table.on_ended(id, outcome, steady_clock::now());
                   pump();
               }}),
      watching(io.get_executor(), {.on_failure = failure_logger(kComponent)}),
      retry(io),
      wakeup(io) {}

JobManager::Core::~Core() {
    if (thread.joinable()) {
        asio::post(io, [this] {
            if (!launcher->outlives_service()) {
                running.kill_all();
            }
            io.stop();
        });
        thread.join();
    }
    running.clear();
}

void JobManager::Core::begin_thread() {
    thread = std::thread([this] { run_thread(); });
}

void JobManager::Core::run_thread() {
    while (true) {
        try {
            io.run();
            return;
        } catch (...) {
            failure_logger(kComponent)(std::current_exception());
        }
    }
}

void JobManager::Core::start() {
    journal.ended([this](const api::Job& job) {
        table.restore_ended(job.id, claims_of_job(job, stored_spec(job.resolved_spec_json)));
    });
    for (const auto& stored : journal.restore()) {
        auto restored = restored_job(stored, launcher->outlives_service());
        const auto& first = stored.job.task_of;
        if (const auto state = first.empty() ? std::nullopt : journal.state_of(first); state && is_terminal(*state)) {
            restored.first_ended = state;
        }
        table.restore(restored, steady_clock::now());
    }
    table.start();
    ready = true;
    show_counts();
    pump();
    launcher->all_adopted();
    static_cast<void>(watching.spawn(watch_nodes()));
}

asio::awaitable<void> JobManager::Core::watch_nodes() {
    asio::steady_timer pause(io);
    while (true) {
        const auto machines = co_await nodes();
        metrics->update([&machines](ServiceCounts& counts) {
            counts.nodes.clear();
            counts.attempts.clear();
            for (const Node& node : machines ? *machines : std::vector<Node>()) {
                NodeCounts& of_state = counts.nodes[node.state];
                ++of_state.nodes;
                of_state.with_jobs += node.jobs.empty() ? 0 : 1;
                of_state.cores += node.cores;
                counts.attempts[node.name] = node.jobs.size();
            }
        });
        pause.expires_after(kNodesInterval);
        co_await pause.async_wait(asio::use_awaitable);
    }
}

asio::awaitable<void> JobManager::Core::stop() {
    ready = false;
    table.stop(steady_clock::now(), launcher->outlives_service());
    pump();
    watching.cancel();
    co_await watching.join();
    if (!launcher->outlives_service()) {
        co_await running.join();
    }
}

bool JobManager::Core::is_ready() {
    try {
        if (ready) {
            written([this] { journal.check_writable(); });
        }
    } catch (const ErrorException&) {
        // store_trouble() says why.
    }
    return ready;
}

void JobManager::Core::pump() {
    if (pumping) {
        return;  // the loop below, further up the stack, asks again
    }
    {
        pumping = true;
        const ScopeExit over([this] { pumping = false; });
        const auto poll = [this] {
            auto actions = table.poll(steady_clock::now());
            journal.live_jobs().change_queue(table.take_queue_changes());
            return actions;
        };
        for (auto actions = poll(); !actions.empty(); actions = poll()) {
            for (const auto& action : actions) {
                std::visit([this](const auto& it) { on(it); }, action);
            }
        }
    }
    wakeup.cancel();
    if (const auto next = table.next_wakeup()) {
        wakeup.expires_at(*next);
        wakeup.async_wait([this](const boost::system::error_code& ec) {
            if (!ec) {
                pump();
            }
        });
    }
}

void JobManager::Core::append(const std::string& id, api::JobEvent event) {
    journal.append(id, std::move(event));
    retry_later();
}

void JobManager::Core::show_counts() {
    try {
        metrics->update([this](ServiceCounts& counts) {
            counts.store = {!journal.needs_retry(), journal.unsaved_events()};
            counts.waiting = journal.waiting();
        });
        const auto jobs = journal.counts();
        metrics->update([&jobs](ServiceCounts& counts) { counts.jobs = {jobs.begin(), jobs.end()}; });
    } catch (const ErrorException& error) {
        log::error(kComponent, error.what());
    }
}

void JobManager::Core::retry_later() {
    if (!journal.needs_retry() || std::exchange(retrying, true)) {
        return;
    }
    retry.expires_after(options.store_retry);
    retry.async_wait([this](const boost::system::error_code& ec) {
        retrying = false;
        if (ec) {
            return;
        }
        journal.retry();
        show_counts();
        retry_later();
    });
}

/// If the worker cannot be started, tells the table that it has ended.
void JobManager::Core::on(const StartWorkerAction& action) {
    auto outcome = kept_from_its_places(action.id);
    if (!outcome) {
        outcome = running.start(action.id, action.resume, action.split);
    }
    if (outcome) {
        table.on_ended(action.id, *outcome, steady_clock::now());
    }
    retry_later();
    show_counts();
}

std::optional<WorkerOutcome> JobManager::Core::kept_from_its_places(const std::string& id) {
    const auto taken = table.claim_again(id, claims_of_job(journal.job(id), journal.spec(id)).paths);
    if (!taken) {
        return std::nullopt;
    }
    WorkerOutcome outcome;
    outcome.kind = WorkerOutcome::Kind::failed;
    outcome.reason = {"invalid_input", api::describe(claim_violation(*taken))};
    return outcome;
}

void JobManager::Core::on(const AdoptWorkerAction& action) {
    if (const auto outcome = running.adopt(action.id)) {
        table.on_ended(action.id, *outcome, steady_clock::now());
    }
    retry_later();
}

void JobManager::Core::on(const TellWorkerAction& action) {
    running.tell(action.id, action.order);
}

void JobManager::Core::on(const KillWorkerAction& action) {
    running.kill(action.id);
}

void JobManager::Core::on(const StoreStateAction& action) {
    auto& stored = journal.edit(action.id);
    auto reason = action.reason;
    if (reason && action.waits) {
        // The same wait, if it did not end in between.
        const auto& before = stored.job.status_reason;
        reason->since = before && before->code == reason->code && !before->since.empty() ? before->since : now_text();
        log::warn(kComponent, action.id + " waits: " + reason->message);
    }
    if (reason && reason->code == kWorkerRestarting) {
        metrics->update([](ServiceCounts& counts) { ++counts.worker_restarts; });
    }
    stored.job.state = action.state;
    stored.job.status_reason = std::move(reason);
    stored.resume = action.resume;
    if (api::is_terminal(action.state)) {
        stored.job.finished_at = now_text();
        metrics->update([&action](ServiceCounts& counts) { ++counts.finished[action.state]; });
        log::info(kComponent, action.id + " " + api::to_string(action.state) +
                                  (action.reason ? ": " + action.reason->message : std::string()));
    }
    append(action.id, state_record(stored.job));
    show_counts();
}

void JobManager::Core::on(const StoreCancelRequestAction& action) {
    journal.edit(action.id).job.cancel_requested = true;
    append(action.id, message_record("cancellation requested"));
}

void JobManager::Core::on(const StoreNoteAction& action) {
    append(action.id, message_record(action.message));
}

void JobManager::Core::on(const WakeReadersAction& /*action*/) {
    waiters.wake_all();
}

}  // namespace distilld

#include "server/jobs/job_table.hpp"

#include <algorithm>
#include <utility>

#include "server/protocol/failure_kinds.hpp"

namespace distilld {
namespace {

using api::JobState;
using api::StatusReason;

bool has_worker(JobIntent intent) {
    return intent != JobIntent::wait;
}

/// What the end of a worker means for its job.
struct Conclusion {
    JobState state = JobState::failed;  ///< queued: it goes on later
    std::optional<StatusReason> reason;
};

bool is_requeued(JobIntent intent) {
    return intent == JobIntent::requeue || intent == JobIntent::requeue_by_force;
}

StatusReason cancel_reason(bool checkpoint) {
    return {"cancelled_by_user", checkpoint ? "cancelled after a checkpoint" : "cancelled before a step was done"};
}

std::string what_happened(const WorkerOutcome& outcome) {
    if (outcome.kind == WorkerOutcome::Kind::cancelled) {
        return "the worker was told to stop from outside the service";
    }
    return outcome.reason.message.empty() ? "the worker ended without a result" : outcome.reason.message;
}

/// Of a job of which nobody but its worker wanted that it ends. Empty: it is not over.
std::optional<Conclusion> conclude_run(const WorkerOutcome& outcome) {
    switch (outcome.kind) {
        case WorkerOutcome::Kind::finished:
            return Conclusion{JobState::succeeded, std::nullopt};
        case WorkerOutcome::Kind::failed:
            return Conclusion{JobState::failed, outcome.reason};
        case WorkerOutcome::Kind::cancelled:  // by a signal to the worker, perhaps one that the service gets as well
        case WorkerOutcome::Kind::died:
        case WorkerOutcome::Kind::out_of_memory:
        case WorkerOutcome::Kind::not_started:
            break;
    }
    return std::nullopt;
}

Conclusion conclude_requeue(const WorkerOutcome& outcome) {
    // A worker that fails inside while the service ends (a signal to the whole group) is no failure of the job.
    const bool inside = outcome.kind == WorkerOutcome::Kind::failed && outcome.reason.code == "internal";
    if (const auto end = conclude_run(outcome); end && !inside) {
        return *end;
    }
    return {JobState::queued,
            StatusReason{"service_stopped", "the service stopped; the job goes on when it starts again"}};
}

Conclusion conclude_cancel(JobIntent intent, const WorkerOutcome& outcome) {
    using Kind = WorkerOutcome::Kind;
    if (outcome.kind == Kind::cancelled) {
        return {JobState::cancelled, cancel_reason(outcome.checkpoint)};
    }
    if (outcome.kind == Kind::not_started) {
        return {JobState::cancelled, cancel_reason(false)};
    }
    if (intent == JobIntent::cancel_by_force && outcome.kind != Kind::finished) {
        return {JobState::cancelled,
                StatusReason{"worker_killed",
                             "the worker did not stop in time and was killed; the newest checkpoint is whole"}};
    }
    if (outcome.kind == Kind::died || outcome.kind == Kind::out_of_memory) {
        return {JobState::cancelled,
                StatusReason{"worker_killed", what_happened(outcome) + "; the newest checkpoint is whole"}};
    }
    return *conclude_run(outcome);
}

}  // namespace

const char* to_string(JobIntent intent) noexcept {
    switch (intent) {
        case JobIntent::wait:
            return "wait";
        case JobIntent::run:
            return "run";
        case JobIntent::cancel:
            return "cancel";
        case JobIntent::cancel_by_force:
            return "cancel_by_force";
        case JobIntent::requeue:
            return "requeue";
        case JobIntent::requeue_by_force:
            return "requeue_by_force";
    }
    return "unknown";
}

void JobTable::restore(const RestoredJob& job) {
    if (mode_ != Mode::restoring) {
        return;
    }
    const auto [place, added] = jobs_.try_emplace(job.id);
    if (!added) {
        return;
    }
    place->second.output = job.output;
    place->second.resume = job.resume;
    place->second.place = next_place_++;
    if (!job.running) {
        queue_.push_back(job.id);
    } else if (job.cancel_requested) {
        end(place, JobState::cancelled, StatusReason{"cancelled_by_user", "cancelled; the service ended meanwhile"});
    } else {
        // Its worker has died with the service.
        StatusReason reason{"service_restarted",
                            "the service ended while the job ran; it goes on from its newest checkpoint"};
        requeue(place, {job.id, JobState::queued, std::move(reason), true});
    }
}

void JobTable::start() {
    if (mode_ == Mode::restoring) {
        mode_ = Mode::started;
    }
}

void JobTable::stop(Time now) {
    if (mode_ == Mode::stopping) {
        return;
    }
    mode_ = Mode::stopping;
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
        if (job->second.intent == JobIntent::run) {
            order_stop(job, JobIntent::requeue, now);
        }
    }
    actions_.emplace_back(WakeReadersAction{});
}

SubmitVerdict JobTable::judge(const JobSubmission& submission) const {
    if (mode_ == Mode::stopping) {
        return SubmitVerdict::stopping;
    }
    if (submission.earlier && !submission.dry_run) {
        return submission.earlier->same_body ? SubmitVerdict::existing : SubmitVerdict::key_reused;
    }
    if (!submission.output) {
        return SubmitVerdict::invalid;
    }
    if (output_user(*submission.output)) {
        return SubmitVerdict::conflict;
    }
    if (submission.dry_run) {
        return SubmitVerdict::valid;
    }
    return queue_.size() >= options_.max_queued ? SubmitVerdict::queue_full : SubmitVerdict::created;
}

void JobTable::enqueue(const std::string& id, const std::string& output) {
    const auto [place, added] = jobs_.try_emplace(id);
    if (added) {
        place->second.output = output;
        place->second.place = next_place_++;
        queue_.push_back(id);
    }
}

bool JobTable::cancel(const std::string& id, Time now) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end()) {
        return false;
    }
    switch (job->second.intent) {
        case JobIntent::wait:
            std::erase(queue_, id);
            end(job, JobState::cancelled, StatusReason{"cancelled_by_user", "cancelled while it was queued"});
            break;
        case JobIntent::run:
            actions_.emplace_back(StoreCancelRequestAction{id});
            order_stop(job, JobIntent::cancel, now);
            break;
        case JobIntent::requeue:
            // The worker has its order, and the deadline stays.
            actions_.emplace_back(StoreCancelRequestAction{id});
            job->second.intent = JobIntent::cancel;
            break;
        case JobIntent::requeue_by_force:
            actions_.emplace_back(StoreCancelRequestAction{id});
            job->second.intent = JobIntent::cancel_by_force;
            break;
        case JobIntent::cancel:
        case JobIntent::cancel_by_force:
            break;
    }
    return true;
}

void JobTable::on_ended(const std::string& id, const WorkerOutcome& outcome, Time now) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end() || !has_worker(job->second.intent)) {
        return;
    }
    --running_;
    const auto intent = job->second.intent;
    std::optional<Conclusion> conclusion;
    if (intent == JobIntent::run) {
        conclusion = conclude_run(outcome);
    } else {
        conclusion = is_requeued(intent) ? conclude_requeue(outcome) : conclude_cancel(intent, outcome);
    }
    if (!conclusion && outcome.kind == WorkerOutcome::Kind::not_started) {
        on_not_started(job, outcome, now);
    } else if (!conclusion && outcome.kind == WorkerOutcome::Kind::out_of_memory && outcome.cut.batch_size != 0) {
        on_out_of_memory(job, outcome, now);
    } else if (!conclusion) {
        on_died(job, outcome, now);
    } else if (conclusion->state == JobState::queued) {
        job->second.deadline = {};
        requeue(job, {id, JobState::queued, std::move(conclusion->reason), true});
    } else {
        end(job, conclusion->state, std::move(conclusion->reason));
    }
}

void JobTable::on_out_of_memory(Entries::iterator job, const WorkerOutcome& outcome, Time now) {
    const auto verdict = job->second.restarts.on_out_of_memory(options_.restarts, outcome.cut);
    auto message = what_happened(outcome) + verdict.text;
    if (!verdict.smaller) {
        end(job, JobState::failed, StatusReason{kOutOfMemory, std::move(message)});
        return;
    }
    job->second.cut = verdict.smaller;
    job->second.deadline = now + verdict.pause;
    StatusReason reason{kOutOfMemoryRestarted, std::move(message)};
    requeue(job, {job->first, JobState::queued, std::move(reason), true, true});
}

void JobTable::on_died(Entries::iterator job, const WorkerOutcome& outcome, Time now) {
    auto& restarts = job->second.restarts;
    const auto pause = restarts.on_died(options_.restarts, outcome.reach);
    if (!pause) {
        // Out of memory before its run began, where smaller micro-batches would be of no use.
        const char* code = outcome.kind == WorkerOutcome::Kind::out_of_memory ? kOutOfMemory : "worker_killed";
        end(job, JobState::failed, StatusReason{code, what_happened(outcome) + restarts.given_up_text()});
        return;
    }
    StatusReason reason{kWorkerRestarting, what_happened(outcome) + restarts.restart_text(options_.restarts, *pause)};
    job->second.deadline = now + *pause;
    requeue(job, {job->first, JobState::queued, std::move(reason), true, true});
}

void JobTable::on_not_started(Entries::iterator job, const WorkerOutcome& outcome, Time now) {
    const auto pause = job->second.restarts.on_not_started(options_.restarts);
    auto reason = outcome.reason;
    reason.message += RestartPolicy::retry_text(pause);
    job->second.deadline = now + pause;
    requeue(job, {job->first, JobState::queued, std::move(reason), job->second.resume, true});
}

std::vector<JobAction> JobTable::poll(Time now) {
    kill_late(now);
    fill_slots(now);
    return std::exchange(actions_, {});
}

std::optional<JobTable::Time> JobTable::next_wakeup() const {
    std::optional<Time> next;
    const auto consider = [&next](Time time) { next = next ? std::min(*next, time) : time; };
    for (const auto& [id, job] : jobs_) {
        if (job.intent == JobIntent::cancel || job.intent == JobIntent::requeue) {
            consider(job.deadline);
        }
    }
    if (mode_ == Mode::started && running_ < options_.slots && !queue_.empty()) {
        consider(jobs_.at(queue_.front()).deadline);
    }
    return next;
}

bool JobTable::is_running(const std::string& id) const {
    const auto job = jobs_.find(id);
    return job != jobs_.end() && has_worker(job->second.intent);
}

std::optional<JobIntent> JobTable::intent(const std::string& id) const {
    const auto job = jobs_.find(id);
    return job == jobs_.end() ? std::nullopt : std::optional(job->second.intent);
}

std::optional<std::uint64_t> JobTable::queue_position(const std::string& id) const {
    const auto place = std::find(queue_.begin(), queue_.end(), id);
    return place == queue_.end() ? std::nullopt : std::optional(static_cast<std::uint64_t>(place - queue_.begin()) + 1);
}

std::optional<std::string> JobTable::output_user(const std::string& output) const {
    for (const auto& [id, job] : jobs_) {
        if (job.output == output) {
            return id;
        }
    }
    return std::nullopt;
}

void JobTable::order_stop(Entries::iterator job, JobIntent intent, Time now) {
    job->second.intent = intent;
    job->second.deadline = now + options_.cancel_grace;
    actions_.emplace_back(StopWorkerAction{job->first});
}

void JobTable::end(Entries::iterator job, JobState state, std::optional<StatusReason> reason) {
    actions_.emplace_back(StoreStateAction{job->first, state, std::move(reason)});
    jobs_.erase(job);
}

void JobTable::requeue(Entries::iterator job, StoreStateAction action) {
    job->second.intent = JobIntent::wait;
    job->second.resume = action.resume;
    const auto behind = std::find_if(queue_.begin(), queue_.end(),
                                     [&](const std::string& id) { return jobs_.at(id).place > job->second.place; });
    queue_.insert(behind, job->first);
    actions_.emplace_back(std::move(action));
}

void JobTable::kill_late(Time now) {
    for (auto& [id, job] : jobs_) {
        if ((job.intent != JobIntent::cancel && job.intent != JobIntent::requeue) || now < job.deadline) {
            continue;
        }
        job.intent = job.intent == JobIntent::cancel ? JobIntent::cancel_by_force : JobIntent::requeue_by_force;
        actions_.emplace_back(KillWorkerAction{id});
    }
}

void JobTable::fill_slots(Time now) {
    while (mode_ == Mode::started && running_ < options_.slots && !queue_.empty()) {
        auto& job = jobs_.at(queue_.front());
        if (now < job.deadline) {
            return;
        }
        actions_.emplace_back(StartWorkerAction{queue_.front(), job.resume, job.cut});
        job.intent = JobIntent::run;
        queue_.pop_front();
        ++running_;
    }
}

}  // namespace distilld

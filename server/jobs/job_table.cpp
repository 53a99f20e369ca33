#include "server/jobs/job_table.hpp"

#include <algorithm>
#include <utility>

#include "server/jobs/run_conclusion.hpp"
#include "server/protocol/failure_kinds.hpp"

namespace distilld {
namespace {

using api::JobState;
using api::StatusReason;

bool has_worker(JobIntent intent) {
    return intent != JobIntent::wait && intent != JobIntent::paused;
}

bool is_cancelled(JobIntent intent) {
    return intent == JobIntent::cancel || intent == JobIntent::cancel_by_force;
}

/// What an order to stop that was not obeyed in time becomes. Nothing: there is no such order.
std::optional<JobIntent> by_force(JobIntent intent) {
    switch (intent) {
        case JobIntent::pause:
            return JobIntent::pause_by_force;
        case JobIntent::resume:
            return JobIntent::resume_by_force;
        case JobIntent::cancel:
            return JobIntent::cancel_by_force;
        case JobIntent::requeue:
            return JobIntent::requeue_by_force;
        default:
            return std::nullopt;
    }
}

}  // namespace

void JobTable::restore(const RestoredJob& job) {
    if (mode_ != Mode::restoring) {
        return;
    }
    const auto [place, added] = jobs_.try_emplace(job.id);
    if (!added) {
        return;
    }
    place->second.claims = job.claims;
    place->second.begun = job.running || job.resume || job.begun;
    claims_.claim(job.id, job.claims);
    place->second.resume = job.resume;
    take_place(place, job.place);
    if (!job.running && job.paused) {
        place->second.intent = JobIntent::paused;
    } else if (!job.running) {
        insert_into_queue(place);
    } else if (job.cancel_requested) {
        end(place, JobState::cancelled, StatusReason{"cancelled_by_user", "cancelled; the service ended meanwhile"});
    } else if (job.paused) {
        place->second.resume = true;
        rest(place, paused_reason("the service ended meanwhile; the newest checkpoint is whole"));
    } else {
        // Its worker has died with the service.
        StatusReason reason{"service_restarted",
                            "the service ended while the job ran; it goes on from its newest checkpoint"};
        requeue(place, {job.id, JobState::queued, std::move(reason), true});
    }
}

void JobTable::restore_ended(const std::string& id, const PathClaims& claims) {
    if (mode_ == Mode::restoring && !jobs_.contains(id)) {
        claims_.claim(id, claims);
        claims_.end(id);
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
    for (const auto job : workers_) {
        ++visited_;
        if (job->second.intent == JobIntent::run) {
            order_stop(job, JobIntent::requeue, now);
        } else if (job->second.intent == JobIntent::resume) {  // the worker has its order, and the deadline stays
            job->second.intent = JobIntent::requeue;
        } else if (job->second.intent == JobIntent::resume_by_force) {
            job->second.intent = JobIntent::requeue_by_force;
        }
        if (by_force(job->second.intent) && options_.stop_grace.count() > 0) {
            job->second.deadline = std::min(job->second.deadline, now + options_.stop_grace);
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
    if (!submission.claims) {
        return SubmitVerdict::invalid;
    }
    if (const auto taken = conflict(*submission.claims)) {
        return taken->ended ? SubmitVerdict::not_yours : SubmitVerdict::conflict;
    }
    if (submission.dry_run) {
        return SubmitVerdict::valid;
    }
    return queue_.size() >= options_.max_queued ? SubmitVerdict::queue_full : SubmitVerdict::created;
}

void JobTable::enqueue(const std::string& id, const PathClaims& claims, QueuePlace place, bool resume) {
    const auto [job, added] = jobs_.try_emplace(id);
    if (added) {
        job->second.claims = claims;
        job->second.begun = resume;
        claims_.claim(id, claims);
        job->second.resume = resume;
        take_place(job, place);
        insert_into_queue(job);
    }
}

bool JobTable::cancel(const std::string& id, Time now, LastCheckpoint last) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end()) {
        return false;
    }
    const auto intent = job->second.intent;
    const bool killed = intent == JobIntent::pause_by_force || intent == JobIntent::resume_by_force ||
                        intent == JobIntent::requeue_by_force;
    switch (intent) {
        case JobIntent::wait:
            leave_queue(job);
            end(job, JobState::cancelled, StatusReason{"cancelled_by_user", "cancelled while it was queued"});
            return true;
        case JobIntent::paused:
            end(job, JobState::cancelled, StatusReason{"cancelled_by_user", "cancelled while it was paused"});
            return true;
        case JobIntent::run:
            actions_.emplace_back(StoreCancelRequestAction{id});
            order_stop(job, JobIntent::cancel, now, last);
            return true;
        case JobIntent::cancel:
        case JobIntent::cancel_by_force:
            break;
        default:  // the worker has its order, and the deadline stays
            actions_.emplace_back(StoreCancelRequestAction{id});
            job->second.intent = killed ? JobIntent::cancel_by_force : JobIntent::cancel;
            break;
    }
    if (last == LastCheckpoint::skip && job->second.intent == JobIntent::cancel) {
        order_skip(job);
    }
    return true;
}

VerbVerdict JobTable::pause(const std::string& id, Time now) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end()) {
        return VerbVerdict::not_here;
    }
    const auto intent = job->second.intent;
    if (is_cancelled(intent)) {
        return VerbVerdict::cancelling;
    }
    switch (intent) {
        case JobIntent::wait:
            leave_queue(job);
            rest(job, paused_reason("paused while it was queued"));
            break;
        case JobIntent::run:
            begin_pause(job, JobIntent::pause);
            order_stop(job, JobIntent::pause, now);
            break;
        case JobIntent::resume:  // the worker has its order, and the deadline stays
        case JobIntent::requeue:
            begin_pause(job, JobIntent::pause);
            break;
        case JobIntent::resume_by_force:
        case JobIntent::requeue_by_force:
            begin_pause(job, JobIntent::pause_by_force);
            break;
        default:
            break;  // it is, or will be
    }
    return VerbVerdict::accepted;
}

VerbVerdict JobTable::resume(const std::string& id) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end()) {
        return VerbVerdict::not_here;
    }
    const auto intent = job->second.intent;
    if (is_cancelled(intent)) {
        return VerbVerdict::cancelling;
    }
    if (intent == JobIntent::paused) {
        actions_.emplace_back(StoreNoteAction{id, "resume requested"});
        requeue(job, {id, JobState::queued, std::nullopt, job->second.resume});
    } else if (intent == JobIntent::pause || intent == JobIntent::pause_by_force) {
        const bool killed = intent == JobIntent::pause_by_force;
        if (mode_ == Mode::stopping) {
            job->second.intent = killed ? JobIntent::requeue_by_force : JobIntent::requeue;
        } else {
            job->second.intent = killed ? JobIntent::resume_by_force : JobIntent::resume;
        }
        StatusReason reason{kResumedByUser, "the job is queued again when its worker has ended"};
        actions_.emplace_back(StoreStateAction{id, JobState::pausing, std::move(reason), true});
    }
    return VerbVerdict::accepted;
}

VerbVerdict JobTable::checkpoint(const std::string& id) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end()) {
        return VerbVerdict::not_here;
    }
    if (is_cancelled(job->second.intent)) {
        return VerbVerdict::cancelling;
    }
    if (job->second.intent != JobIntent::run) {
        return VerbVerdict::not_running;
    }
    actions_.emplace_back(StoreNoteAction{id, "checkpoint requested"});
    actions_.emplace_back(CheckpointWorkerAction{id});
    return VerbVerdict::accepted;
}

bool JobTable::set_priority(const std::string& id, std::int32_t priority) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end()) {
        return false;
    }
    job->second.place.priority = priority;
    if (job->second.intent == JobIntent::wait) {
        insert_into_queue(job);
    }
    return true;
}

void JobTable::on_ended(const std::string& id, const WorkerOutcome& outcome, Time now) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end() || !has_worker(job->second.intent)) {
        return;
    }
    workers_.erase(job);
    const auto intent = job->second.intent;
    const bool started = outcome.kind != WorkerOutcome::Kind::not_started;
    auto conclusion = conclude({intent, job->second.skips_checkpoint, job->second.resume}, outcome);
    if (!conclusion && !started) {
        on_not_started(job, outcome, now);
    } else if (!conclusion && outcome.kind == WorkerOutcome::Kind::out_of_memory && outcome.cut.batch_size != 0) {
        on_out_of_memory(job, outcome, now);
    } else if (!conclusion) {
        on_died(job, outcome, now);
    } else if (conclusion->state == JobState::queued) {
        job->second.deadline = {};
        requeue(job, {id, JobState::queued, std::move(conclusion->reason), true});
    } else if (conclusion->state == JobState::paused) {
        job->second.resume = job->second.resume || started;
        rest(job, *std::move(conclusion->reason));
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
    for (const auto job : workers_) {
        ++visited_;
        if (by_force(job->second.intent)) {
            consider(job->second.deadline);
        }
    }
    if (mode_ == Mode::started && running() < options_.slots && !queue_.empty()) {
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

std::optional<ClaimConflict> JobTable::claim_again(const std::string& id, const std::vector<PathClaim>& paths) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end() || job->second.claims.paths == paths) {
        return std::nullopt;
    }
    PathClaims claims = job->second.claims;
    claims.paths = paths;
    if (auto taken = conflict(claims, id)) {
        return taken;
    }
    claims_.claim(id, claims);
    job->second.claims = std::move(claims);
    return std::nullopt;
}

void JobTable::order_stop(Entries::iterator job, JobIntent intent, Time now, LastCheckpoint last) {
    job->second.intent = intent;
    const bool stopping = intent == JobIntent::requeue && options_.stop_grace.count() > 0;
    job->second.deadline = now + (stopping ? options_.stop_grace : options_.cancel_grace);
    job->second.skips_checkpoint = last == LastCheckpoint::skip;
    actions_.emplace_back(StopWorkerAction{job->first, last});
}

void JobTable::order_skip(Entries::iterator job) {
    if (!std::exchange(job->second.skips_checkpoint, true)) {
        actions_.emplace_back(StopWorkerAction{job->first, LastCheckpoint::skip});
    }
}

void JobTable::take_place(Entries::iterator job, QueuePlace place) {
    newest_ = std::max(newest_ + (place.number == 0 ? 1 : 0), place.number);
    job->second.place = {place.priority, place.number == 0 ? newest_ : place.number};
}

void JobTable::insert_into_queue(Entries::iterator job) {
    queue_.put(job->first, job->second.place);
    queue_changes_.push_back({job->first, job->second.place});
}

void JobTable::leave_queue(Entries::iterator job) {
    queue_.erase(job->first);
    queue_changes_.push_back({job->first, std::nullopt});
}

void JobTable::begin_pause(Entries::iterator job, JobIntent intent) {
    job->second.intent = intent;
    auto reason = paused_reason("the job is paused when its worker has written a checkpoint");
    actions_.emplace_back(StoreStateAction{job->first, JobState::pausing, std::move(reason), true});
}

void JobTable::rest(Entries::iterator job, StatusReason reason) {
    job->second.intent = JobIntent::paused;
    job->second.deadline = {};
    job->second.restarts = {};
    actions_.emplace_back(StoreStateAction{job->first, JobState::paused, std::move(reason), job->second.resume});
}

void JobTable::end(Entries::iterator job, JobState state, std::optional<StatusReason> reason) {
    actions_.emplace_back(StoreStateAction{job->first, state, std::move(reason)});
    if (job->second.begun) {
        claims_.end(job->first);
    } else {
        claims_.forget(job->first);
    }
    jobs_.erase(job);
}

void JobTable::requeue(Entries::iterator job, StoreStateAction action) {
    job->second.intent = JobIntent::wait;
    job->second.resume = action.resume;
    insert_into_queue(job);
    actions_.emplace_back(std::move(action));
}

void JobTable::kill_late(Time now) {
    for (const auto job : workers_) {
        ++visited_;
        const auto forced = by_force(job->second.intent);
        if (!forced || now < job->second.deadline) {
            continue;
        }
        job->second.intent = *forced;
        actions_.emplace_back(KillWorkerAction{job->first});
    }
}

void JobTable::fill_slots(Time now) {
    while (mode_ == Mode::started && running() < options_.slots && !queue_.empty()) {
        const auto job = jobs_.find(queue_.front());
        if (now < job->second.deadline) {
            return;
        }
        actions_.emplace_back(StartWorkerAction{job->first, job->second.resume, job->second.cut});
        job->second.intent = JobIntent::run;
        job->second.begun = true;
        leave_queue(job);
        workers_.insert(job);
    }
}

}  // namespace distilld

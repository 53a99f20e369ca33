#include "server/jobs/table/job_table.hpp"

#include <algorithm>
#include <utility>

#include "server/jobs/table/run_conclusion.hpp"
#include "server/protocol/failure_kinds.hpp"

namespace distilld {
namespace {

using api::JobState;
using api::StatusReason;

bool has_worker(JobPhase phase) {
    return phase != JobPhase::waiting && phase != JobPhase::resting;
}

}  // namespace

void JobTable::restore(const RestoredJob& job, Time now) {
    if (mode_ != Mode::restoring) {
        return;
    }
    const auto [place, added] = jobs_.try_emplace(job.id);
    if (!added) {
        return;
    }
    place->second.claims = job.claims;
    join_array(place);
    place->second.begun = job.running || job.resume || job.begun;
    claims_.claim(job.id, job.claims);
    place->second.resume = job.resume;
    take_place(place, job.place);
    if (job.running && job.adopted) {
        adopt(place, job, now);
    } else if (!job.running && job.paused) {
        place->second.intent = {JobWish::pause, JobPhase::resting};
    } else if (!job.running && job.held) {
        held_.emplace(place, "");  // until start()
    } else if (!job.running) {
        insert_into_queue(place);
    } else if (job.cancel_requested) {
        end(place, JobState::cancelled, StatusReason{"cancelled_by_user", "cancelled; the service ended meanwhile"},
            now);
    } else if (job.paused) {
        place->second.resume = true;
        rest(place, paused_reason("the service ended meanwhile; the newest checkpoint is whole"));
    } else {
        // Its worker died with the service.
        StatusReason reason{"service_restarted",
                            "the service ended while the job ran; the job resumes from its newest checkpoint"};
        requeue(place, {job.id, JobState::queued, std::move(reason), true});
    }
    if (const auto found = jobs_.find(job.id); found != jobs_.end() && job.first_ended) {
        end_with_first(found, *job.first_ended, {"array_ended", "the service ended meanwhile"}, now);
    }
}

void JobTable::adopt(Entries::iterator job, const RestoredJob& restored, Time now) {
    job->second.intent = {JobWish::run, JobPhase::running};
    workers_.insert(job);
    actions_.emplace_back(AdoptWorkerAction{job->first});
    // The order to stop may not have reached it.
    if (restored.cancel_requested) {
        order_stop(job, JobWish::cancel, now);
    } else if (restored.paused || restored.resumed) {
        order_stop(job, restored.paused ? JobWish::pause : JobWish::resume, now);
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
        hold_queued();
        release_held();
    }
}

void JobTable::stop(Time now, bool workers_go_on) {
    if (mode_ == Mode::stopping) {
        return;
    }
    mode_ = Mode::stopping;
    for (const auto job : workers_) {
        if (workers_go_on) {
            break;
        }
        ++visited_;
        auto& [wish, phase] = job->second.intent;
        if (phase == JobPhase::running) {
            order_stop(job, JobWish::requeue, now);
        } else if (wish == JobWish::resume) {  // the worker has its order, and the deadline stays
            wish = JobWish::requeue;
        }
        if (phase == JobPhase::stopping && options_.stop_grace.count() > 0) {
            job->second.deadline = std::min(job->second.deadline, now + options_.stop_grace);
        }
    }
    actions_.emplace_back(WakeReadersAction{});
}

JobVerdict JobTable::judge(const JobSubmission& submission) const {
    if (mode_ == Mode::stopping) {
        return JobVerdict::stopping;
    }
    if (submission.earlier && !submission.dry_run) {
        return submission.earlier->same_body ? JobVerdict::existing : JobVerdict::key_reused;
    }
    if (!submission.claims) {
        return JobVerdict::invalid_spec;
    }
    if (const auto taken = conflict(*submission.claims)) {
        return taken->ended ? JobVerdict::not_yours : JobVerdict::output_in_use;
    }
    if (submission.dry_run) {
        return JobVerdict::valid;
    }
    return queue_.size() + held_.size() + submission.tasks > options_.max_queued ? JobVerdict::queue_full
                                                                                 : JobVerdict::created;
}

void JobTable::enqueue(const std::string& id, const PathClaims& claims, QueuePlace place, bool resume) {
    const auto [job, added] = jobs_.try_emplace(id);
    if (added) {
        job->second.claims = claims;
        join_array(job);
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
    const auto [wish, phase] = job->second.intent;
    if (!has_worker(phase)) {
        const bool waits = phase == JobPhase::waiting;
        if (waits) {
            leave_queue(job);
        }
        end(job, JobState::cancelled,
            StatusReason{"cancelled_by_user",
                         waits ? "cancelled while it was queued" : "cancelled while it was paused"},
            now);
        return true;
    }
    if (wish != JobWish::cancel) {
        actions_.emplace_back(StoreCancelRequestAction{id});
    }
    if (phase == JobPhase::running) {
        order_stop(job, JobWish::cancel, now, last);
        return true;
    }
    job->second.intent.wish = JobWish::cancel;  // the worker has its order, and the deadline stays
    if (last == LastCheckpoint::skip && phase == JobPhase::stopping) {
        order_skip(job);
    }
    return true;
}

JobVerdict JobTable::pause(const std::string& id, Time now) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end()) {
        return JobVerdict::not_found;
    }
    const auto [wish, phase] = job->second.intent;
    if (wish == JobWish::cancel) {
        return JobVerdict::cancelling;
    }
    if (phase == JobPhase::waiting) {
        leave_queue(job);
        rest(job, paused_reason("paused while it was queued"));
    } else if (phase == JobPhase::running) {
        begin_pause(job);
        order_stop(job, JobWish::pause, now);
    } else if (wish != JobWish::pause) {  // the worker has its order, and the deadline stays
        begin_pause(job);
    }
    return JobVerdict::accepted;
}

JobVerdict JobTable::resume(const std::string& id) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end()) {
        return JobVerdict::not_found;
    }
    const auto [wish, phase] = job->second.intent;
    if (wish == JobWish::cancel) {
        return JobVerdict::cancelling;
    }
    if (phase == JobPhase::resting) {
        actions_.emplace_back(StoreNoteAction{id, "resume requested"});
        requeue(job, {id, JobState::queued, std::nullopt, job->second.resume});
    } else if (wish == JobWish::pause) {
        job->second.intent.wish = mode_ == Mode::stopping ? JobWish::requeue : JobWish::resume;
        StatusReason reason{kResumedByUser, "the job is queued again when its worker has ended"};
        actions_.emplace_back(StoreStateAction{id, JobState::pausing, std::move(reason), true});
    }
    return JobVerdict::accepted;
}

JobVerdict JobTable::tell(const std::string& id, WorkerCommand order, std::string note) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end()) {
        return JobVerdict::not_found;
    }
    if (job->second.intent.wish == JobWish::cancel) {
        return JobVerdict::cancelling;
    }
    if (job->second.intent.phase != JobPhase::running) {
        return JobVerdict::not_running;
    }
    actions_.emplace_back(StoreNoteAction{id, std::move(note)});
    actions_.emplace_back(TellWorkerAction{id, order});
    return JobVerdict::accepted;
}

bool JobTable::set_priority(const std::string& id, std::int32_t priority) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end()) {
        return false;
    }
    job->second.place.priority = priority;
    if (job->second.intent.phase == JobPhase::waiting && !held_.contains(job)) {
        insert_into_queue(job);
    }
    return true;
}

void JobTable::on_ended(const std::string& id, const WorkerOutcome& outcome, Time now) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end() || !has_worker(job->second.intent.phase)) {
        return;
    }
    workers_.erase(job);
    const auto intent = job->second.intent;
    const bool started = outcome.kind != WorkerOutcome::Kind::not_started;
    auto conclusion = conclude({intent, job->second.skips_checkpoint, job->second.resume}, outcome);
    if (!conclusion && !started) {
        on_not_started(job, outcome, now);
    } else if (!conclusion) {
        on_died(job, outcome, now);
    } else if (conclusion->state == JobState::queued) {
        job->second.deadline = {};
        requeue(job, {id, JobState::queued, std::move(conclusion->reason), true});
    } else if (conclusion->state == JobState::paused) {
        job->second.resume = job->second.resume || started;
        rest(job, *std::move(conclusion->reason));
    } else {
        const bool with_first = job->second.ended_with && conclusion->state == JobState::cancelled;
        end(job, conclusion->state, with_first ? job->second.ended_with : std::move(conclusion->reason), now);
    }
}

void JobTable::on_died(Entries::iterator job, const WorkerOutcome& outcome, Time now) {
    const bool out_of_memory = outcome.kind == WorkerOutcome::Kind::out_of_memory;
    const auto verdict = job->second.restarts.on_died(options_.restarts, outcome.reach, out_of_memory);
    auto message = what_happened(outcome) + verdict.text;
    if (!verdict.pause) {
        end(job, JobState::failed, StatusReason{out_of_memory ? kOutOfMemory : "worker_killed", std::move(message)},
            now);
        return;
    }
    if (verdict.smaller) {
        job->second.split = verdict.smaller;
    }
    StatusReason reason{verdict.smaller ? kOutOfMemoryRestarted : kWorkerRestarting, std::move(message)};
    job->second.deadline = now + *verdict.pause;
    requeue(job, {job->first, JobState::queued, std::move(reason), true, true});
}

void JobTable::on_not_started(Entries::iterator job, const WorkerOutcome& outcome, Time now) {
    const auto verdict = job->second.restarts.on_not_started(options_.restarts);
    auto reason = outcome.reason;
    reason.message += verdict.text;
    job->second.deadline = now + *verdict.pause;
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
        if (job->second.intent.phase == JobPhase::stopping) {
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
    return job != jobs_.end() && has_worker(job->second.intent.phase);
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

void JobTable::order_stop(Entries::iterator job, JobWish wish, Time now, LastCheckpoint last) {
    job->second.intent = {wish, JobPhase::stopping};
    const bool stopping = wish == JobWish::requeue && options_.stop_grace.count() > 0;
    job->second.deadline = now + (stopping ? options_.stop_grace : options_.cancel_grace);
    job->second.skips_checkpoint = last == LastCheckpoint::skip;
    actions_.emplace_back(TellWorkerAction{job->first, CancelCommand{last == LastCheckpoint::write}});
}

void JobTable::order_skip(Entries::iterator job) {
    if (!std::exchange(job->second.skips_checkpoint, true)) {
        actions_.emplace_back(TellWorkerAction{job->first, CancelCommand{false}});
    }
}

void JobTable::take_place(Entries::iterator job, QueuePlace place) {
    newest_ = std::max(newest_ + (place.number == 0 ? 1 : 0), place.number);
    job->second.place = {place.priority, place.number == 0 ? newest_ : place.number};
}

void JobTable::insert_into_queue(Entries::iterator job) {
    if (const auto store = mode_ == Mode::started ? awaited(job) : std::nullopt) {
        hold(job, *store);
        return;
    }
    queue_.put(job->first, job->second.place);
    queue_changes_.push_back({job->first, job->second.place});
}

void JobTable::leave_queue(Entries::iterator job) {
    if (held_.erase(job) > 0) {
        return;
    }
    queue_.erase(job->first);
    queue_changes_.push_back({job->first, std::nullopt});
}

void JobTable::begin_pause(Entries::iterator job) {
    job->second.intent.wish = JobWish::pause;
    auto reason = paused_reason("the job is paused when its worker has written a checkpoint");
    actions_.emplace_back(StoreStateAction{job->first, JobState::pausing, std::move(reason), true});
}

void JobTable::rest(Entries::iterator job, StatusReason reason) {
    job->second.intent = {JobWish::pause, JobPhase::resting};
    job->second.deadline = {};
    job->second.restarts = {};
    actions_.emplace_back(StoreStateAction{job->first, JobState::paused, std::move(reason), job->second.resume});
}

void JobTable::requeue(Entries::iterator job, StoreStateAction action) {
    job->second.intent = {};
    job->second.resume = action.resume;
    actions_.emplace_back(std::move(action));
    insert_into_queue(job);
}

void JobTable::kill_late(Time now) {
    for (const auto job : workers_) {
        ++visited_;
        if (job->second.intent.phase == JobPhase::stopping && now >= job->second.deadline) {
            job->second.intent.phase = JobPhase::killed;
            actions_.emplace_back(KillWorkerAction{job->first});
        }
    }
}

void JobTable::fill_slots(Time now) {
    while (mode_ == Mode::started && running() < options_.slots && !queue_.empty()) {
        const auto job = jobs_.find(queue_.front());
        if (const auto store = awaited(job)) {  // its maker has come later
            leave_queue(job);
            hold(job, *store);
            continue;
        }
        if (now < job->second.deadline) {
            return;
        }
        actions_.emplace_back(StartWorkerAction{job->first, job->second.resume, job->second.split});
        job->second.intent = {JobWish::run, JobPhase::running};
        job->second.begun = true;
        leave_queue(job);
        workers_.insert(job);
    }
}

}  // namespace distilld

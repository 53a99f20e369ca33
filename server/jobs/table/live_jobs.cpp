#include "server/jobs/table/live_jobs.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace distilld {

bool put_checkpoint(std::vector<api::JobCheckpoint>& checkpoints, api::JobCheckpoint checkpoint) {
    const auto erased =
        std::erase_if(checkpoints, [&](const auto& other) { return other.folder == checkpoint.folder; });
    checkpoints.push_back(std::move(checkpoint));
    return erased == 0;
}

api::Job newest(const LiveJob* live, api::Job stored) {
    if (live == nullptr) {
        return stored;
    }
    auto job = live->job;
    job.spec_json = std::move(stored.spec_json);
    if (job.resolved_spec_json.empty()) {
        job.resolved_spec_json = std::move(stored.resolved_spec_json);
    }
    job.asked_json = std::move(stored.asked_json);
    job.tasks = std::move(stored.tasks);
    job.checkpoints = std::move(stored.checkpoints);
    job.checkpoints_total = stored.checkpoints_total;
    job.max_checkpoints = stored.max_checkpoints;
    for (const auto& checkpoint : live->unsaved_checkpoints) {
        job.checkpoints_total += put_checkpoint(job.checkpoints, checkpoint) ? 1 : 0;
    }
    const auto surplus = std::ssize(job.checkpoints) - static_cast<std::ptrdiff_t>(job.max_checkpoints);
    job.checkpoints.erase(job.checkpoints.begin(), job.checkpoints.begin() + std::max<std::ptrdiff_t>(surplus, 0));
    return job;
}

void LiveJobs::put(const std::string& id, LiveJob job) {
    auto next = std::make_shared<const LiveJob>(std::move(job));
    const std::lock_guard lock(mutex_);
    auto& entry = live_[id];
    entry.job.swap(next);
    entry.change = ++changes_;
}

void LiveJobs::erase(const std::string& id) {
    const std::lock_guard lock(mutex_);
    live_.erase(id);
    ended_change_ = ++changes_;
}

void LiveJobs::ended_job_changed() {
    const std::lock_guard lock(mutex_);
    ended_change_ = ++changes_;
}

void LiveJobs::change_queue(const std::vector<QueueChange>& changes) {
    if (changes.empty()) {
        return;
    }
    const std::lock_guard lock(mutex_);
    for (const auto& change : changes) {
        queue_.apply(change);
    }
}

void LiveJobs::set_trouble(std::optional<api::StatusReason> trouble) {
    const std::lock_guard lock(mutex_);
    trouble_ = std::move(trouble);
}

std::shared_ptr<const LiveJob> LiveJobs::find(const std::string& id) const {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(id);
    return found == live_.end() ? nullptr : found->second.job;
}

JobVersion LiveJobs::version_of(const std::string& id) const {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(id);
    return {found == live_.end() ? ended_change_ : found->second.change, queue_.position(id).value_or(0)};
}

std::optional<std::uint64_t> LiveJobs::queue_position(const std::string& id) const {
    const std::lock_guard lock(mutex_);
    return queue_.position(id);
}

void LiveJobs::complete(api::Job& job) const {
    job.queue_position = queue_position(job.id);
    if (!job.queue_position || job.status_reason) {
        return;
    }
    const auto before = *job.queue_position - 1;
    job.status_reason =
        api::StatusReason{"waiting_for_slot", before == 0   ? "it is the next to get a slot"
                                              : before == 1 ? "1 job is before it"
                                                            : std::to_string(before) + " jobs are before it"};
}

std::optional<api::StatusReason> LiveJobs::trouble() const {
    const std::lock_guard lock(mutex_);
    return trouble_;
}

}  // namespace distilld

#include "server/jobs/job_board.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace distilld {

void put_checkpoint(std::vector<api::JobCheckpoint>& checkpoints, api::JobCheckpoint checkpoint) {
    std::erase_if(checkpoints, [&](const auto& other) { return other.folder == checkpoint.folder; });
    checkpoints.push_back(std::move(checkpoint));
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
    job.checkpoints = std::move(stored.checkpoints);
    for (const auto& checkpoint : live->unsaved_checkpoints) {
        put_checkpoint(job.checkpoints, checkpoint);
    }
    return job;
}

void JobBoard::put(const std::string& id, LiveJob job) {
    auto next = std::make_shared<const LiveJob>(std::move(job));
    const std::lock_guard lock(mutex_);
    live_[id].swap(next);
}

void JobBoard::erase(const std::string& id) {
    const std::lock_guard lock(mutex_);
    live_.erase(id);
}

void JobBoard::set_queue(const std::deque<std::string>& queue) {
    const bool grown = queue.size() >= queue_.size() && std::equal(queue_.begin(), queue_.end(), queue.begin());
    if (grown) {  // mostly by one, or by none
        const std::lock_guard lock(mutex_);
        for (std::size_t place = queue_.size(); place < queue.size(); ++place) {
            positions_.insert_or_assign(queue[place], place + 1);
        }
    } else {
        std::unordered_map<std::string, std::uint64_t> positions;
        positions.reserve(queue.size());
        for (const auto& id : queue) {
            positions.emplace(id, positions.size() + 1);
        }
        const std::lock_guard lock(mutex_);
        positions_.swap(positions);
    }
    queue_ = queue;
}

void JobBoard::set_trouble(std::optional<api::StatusReason> trouble) {
    const std::lock_guard lock(mutex_);
    trouble_ = std::move(trouble);
}

std::shared_ptr<const LiveJob> JobBoard::find(const std::string& id) const {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(id);
    return found == live_.end() ? nullptr : found->second;
}

std::optional<std::uint64_t> JobBoard::queue_position(const std::string& id) const {
    const std::lock_guard lock(mutex_);
    const auto found = positions_.find(id);
    return found == positions_.end() ? std::nullopt : std::optional(found->second);
}

void JobBoard::complete(api::Job& job) const {
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

std::optional<api::StatusReason> JobBoard::trouble() const {
    const std::lock_guard lock(mutex_);
    return trouble_;
}

}  // namespace distilld

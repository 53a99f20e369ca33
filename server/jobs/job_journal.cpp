#include "server/jobs/job_journal.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/jobs/event_records.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

/// Old metrics are dropped once in so many events.
constexpr std::uint64_t kDropInterval = 1000;
constexpr std::chrono::milliseconds kWritableKept{500};

/// A job that runs has events, and each brings along what is unsaved.
bool is_stuck(const api::Job& job, bool unsaved) {
    return unsaved && job.state != api::JobState::running;
}

void put_checkpoint(std::vector<api::JobCheckpoint>& checkpoints, api::JobCheckpoint checkpoint) {
    std::erase_if(checkpoints, [&](const auto& other) { return other.folder == checkpoint.folder; });
    checkpoints.push_back(std::move(checkpoint));
}

}  // namespace

std::string now_text() {
    return api::rfc3339(std::chrono::system_clock::now());
}

JobJournal::JobJournal(std::unique_ptr<JobStore> store, std::uint32_t metrics_kept,
                       std::function<void(const std::string& id)> wake)
    : store_(std::move(store)), metrics_kept_(metrics_kept), wake_(std::move(wake)) {}

std::vector<StoredJob> JobJournal::restore() {
    auto jobs = store_->unfinished();
    for (const auto& stored : jobs) {
        auto& live = live_[stored.job.id];
        live.stored = stored;
        live.stored.job.checkpoints.clear();
    }
    return jobs;
}

std::optional<api::Job> JobJournal::get(const std::string& id) {
    auto stored = store_->get(id);
    return stored ? std::optional(newest(std::move(stored->job))) : std::nullopt;
}

void JobJournal::check_writable() {
    const auto now = std::chrono::steady_clock::now();
    if (writable_at_ && now - *writable_at_ < kWritableKept) {
        return;
    }
    writable_at_.reset();
    store_->check_writable();
    writable_at_ = now;
}

std::optional<api::JobState> JobJournal::state_of(const std::string& id) {
    if (const auto live = live_.find(id); live != live_.end()) {
        return live->second.stored.job.state;
    }
    const auto stored = store_->get(id);
    return stored ? std::optional(stored->job.state) : std::nullopt;
}

std::optional<StoredJob> JobJournal::find_by_key(const std::string& key, const std::string& not_before) {
    auto stored = store_->find_by_key(key, not_before);
    if (stored) {
        stored->job = newest(std::move(stored->job));
    }
    return stored;
}

std::vector<api::Job> JobJournal::list(const JobQuery& query, bool& has_more) {
    auto page = store_->list(query);
    has_more = page.has_more;
    std::vector<api::Job> jobs;
    for (auto& stored : page.jobs) {
        jobs.push_back(newest(std::move(stored.job)));
    }
    return jobs;
}

EventPage JobJournal::events(const std::string& id, std::uint64_t after, std::uint32_t limit) {
    return store_->events(id, after, limit);
}

std::map<std::string, std::uint64_t> JobJournal::waiting() const {
    std::map<std::string, std::uint64_t> counts;
    for (const auto& [id, live] : live_) {
        if (const auto& reason = live.stored.job.status_reason; reason && !reason->since.empty()) {
            ++counts[reason->code];
        }
    }
    return counts;
}

void JobJournal::create(const StoredJob& stored) {
    store_->create(stored);
    auto& live = live_[stored.job.id];
    live.stored = stored;
    live.stored.job.spec_json.clear();
    live.stored.job.resolved_spec_json.clear();
}

void JobJournal::set_progress(const std::string& id, const ProgressEvent& progress) {
    auto& live = live_.at(id);
    live.stored.job.progress = progress;
    live.progress_unsaved = true;
}

void JobJournal::set_eval_loss(const std::string& id, double loss) {
    auto& live = live_.at(id);
    live.stored.job.eval_loss = loss;
    live.eval_loss_unsaved = true;
}

void JobJournal::add_checkpoint(const std::string& id, api::JobCheckpoint checkpoint) {
    put_checkpoint(live_.at(id).unsaved_checkpoints, std::move(checkpoint));
}

StoredJob& JobJournal::edit(const std::string& id) {
    auto& live = live_.at(id);
    live.state_unsaved = true;
    return live.stored;
}

void JobJournal::append(const std::string& id, api::JobEvent event) {
    event.created_at = now_text();
    const auto place = live_.find(id);
    if (place == live_.end()) {
        return;
    }
    auto& live = place->second;
    try {
        const auto sequence = store_->append_event(id, event, change_of(live));
        live.state_unsaved = false;
        live.progress_unsaved = false;
        live.eval_loss_unsaved = false;
        live.unsaved_checkpoints.clear();
        if (event.type == api::EventType::metrics && sequence % kDropInterval == 0 && sequence > metrics_kept_) {
            store_->drop_metrics(id, sequence - metrics_kept_);
        }
        if (api::is_terminal(live.stored.job.state)) {
            live_.erase(place);
        }
    } catch (const ErrorException& error) {
        log::error("jobs", id + ": cannot be stored: " + error.what());
    }
    wake_(id);
}

bool JobJournal::needs_retry() const {
    return std::any_of(live_.begin(), live_.end(),
                       [](const auto& entry) { return is_stuck(entry.second.stored.job, entry.second.state_unsaved); });
}

void JobJournal::retry() {
    std::vector<api::Job> jobs;
    for (const auto& [id, live] : live_) {
        if (is_stuck(live.stored.job, live.state_unsaved)) {
            jobs.push_back(live.stored.job);
        }
    }
    for (const auto& job : jobs) {
        append(job.id, state_record(job));
    }
}

/// What the store has of a job, with what it does not have yet.
api::Job JobJournal::newest(api::Job stored) const {
    const auto place = live_.find(stored.id);
    if (place == live_.end()) {
        return stored;
    }
    const auto& live = place->second;
    auto job = live.stored.job;
    job.spec_json = std::move(stored.spec_json);
    job.resolved_spec_json = std::move(stored.resolved_spec_json);
    job.checkpoints = std::move(stored.checkpoints);
    for (const auto& checkpoint : live.unsaved_checkpoints) {
        put_checkpoint(job.checkpoints, checkpoint);
    }
    return job;
}

JobChange JobJournal::change_of(const Live& live) {
    JobChange change;
    const auto& job = live.stored.job;
    change.state = live.state_unsaved ? &live.stored : nullptr;
    change.progress = live.progress_unsaved && job.progress ? &*job.progress : nullptr;
    change.eval_loss = live.eval_loss_unsaved ? job.eval_loss : std::nullopt;
    change.checkpoints = live.unsaved_checkpoints;
    return change;
}

}  // namespace distilld

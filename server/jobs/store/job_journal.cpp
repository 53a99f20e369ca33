#include "server/jobs/store/job_journal.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <ranges>
#include <utility>

#include "api/job_spec_json.hpp"

namespace distilld {
namespace {

constexpr std::chrono::milliseconds kWritableKept{500};

/// The state of a job in the store; nullopt if it is damaged, since then it may differ from the counted one.
std::optional<api::JobState> state_on_disk(const StoredJob& stored) {
    const auto& reason = stored.job.status_reason;
    return reason && reason->code == kDamagedReason ? std::nullopt : std::optional(stored.job.state);
}

/// The code of the reason that the job waits for, if any.
std::optional<std::string> wait_of(const api::Job& job) {
    const auto& reason = job.status_reason;
    return reason && !reason->since.empty() ? std::optional(reason->code) : std::nullopt;
}

}  // namespace

std::shared_ptr<const JobSpec> stored_spec(const std::string& spec_json) {
    auto spec = api::parse_job_spec(spec_json);
    return spec ? std::make_shared<const JobSpec>(*std::move(spec)) : nullptr;
}

std::string now_text() {
    return api::rfc3339(std::chrono::system_clock::now());
}

JobJournal::JobJournal(std::unique_ptr<JobStore> store, std::uint32_t metrics_kept,
                       std::function<void(const std::string& id)> wake, std::uint32_t messages_kept,
                       std::function<void()> on_trouble)
    : store_(std::move(store)),
      metrics_kept_(metrics_kept),
      messages_kept_(messages_kept),
      wake_(std::move(wake)),
      on_trouble_(std::move(on_trouble)) {}

std::vector<StoredJob> JobJournal::restore() {
    auto jobs = store_->unfinished();
    for (auto& stored : jobs) {
        if (const auto whole = store_->get(stored.job.id)) {
            stored.spec = stored_spec(whole->job.resolved_spec_json);
        }
        auto& live = live_[stored.job.id];
        live.stored = stored;
        live.stored.job.checkpoints.clear();
        live.stored_state = stored.job.state;  // the store found them by it
        live.saved_received = stored.attempt_received;
        show(stored.job.id, live);
    }
    return jobs;
}

std::optional<api::Job> JobJournal::get(const std::string& id) {
    auto stored = store_->get(id);
    return stored ? std::optional(with_newest(std::move(stored->job))) : std::nullopt;
}

void JobJournal::check_writable() {
    const auto now = std::chrono::steady_clock::now();
    if (writable_at_ && now - *writable_at_ < kWritableKept) {
        return;
    }
    writable_at_.reset();
    try {
        store_->try_write();
    } catch (const ErrorException& error) {
        refused(error.what());
        throw;
    }
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
        stored->job = with_newest(std::move(stored->job));
    }
    return stored;
}

EventPage JobJournal::events(const std::string& id, std::uint64_t after, std::uint32_t limit) {
    return store_->events(id, after, limit);
}

std::optional<std::uint64_t> JobJournal::last_metrics_step(const std::string& id) {
    std::optional<std::uint64_t> last;
    const auto take = [&last](const api::JobEvent& event) {
        if (event.type == api::EventType::metrics) {
            last = event.data.at("step").to_number<std::uint64_t>();
        }
    };
    try {
        store_->measurements(id, take);
        std::ranges::for_each(live_.at(id).unsaved_events, take);
    } catch (const std::exception&) {  // of the disk, or of an event that is damaged
        return std::nullopt;
    }
    return last;
}

const std::map<std::string, std::uint64_t>& JobJournal::waiting() {
    for (const auto& id : std::exchange(edited_, {})) {
        if (const auto live = live_.find(id); live != live_.end()) {
            count_wait(live->second, wait_of(live->second.stored.job));
        }
    }
    return waiting_;
}

std::vector<std::pair<api::JobState, std::uint64_t>> JobJournal::counts() {
    if (!counts_) {
        const auto found = store_->counts();
        counts_.emplace(found.begin(), found.end());
    }
    return {counts_->begin(), counts_->end()};
}

void JobJournal::count_wait(Live& live, std::optional<std::string> code) {
    if (live.waits_for == code) {
        return;
    }
    if (live.waits_for && --waiting_.at(*live.waits_for) == 0) {
        waiting_.erase(*live.waits_for);
    }
    if (code) {
        ++waiting_[*code];
    }
    live.waits_for = std::move(code);
}

void JobJournal::count_state(std::optional<api::JobState> before, std::optional<api::JobState> now) {
    if (!counts_ || before == now) {
        return;
    }
    if (before && --(*counts_)[*before] == 0) {
        counts_->erase(*before);
    }
    if (now) {
        ++(*counts_)[*now];
    }
}

void JobJournal::count_unsaved(const std::string& id, const Live& live, std::size_t before) {
    unsaved_events_ = unsaved_events_ + live.unsaved_events.size() - before;
    if (live.unsaved_events.empty()) {
        unsaved_.erase(id);
    } else {
        unsaved_.insert(id);
    }
}

std::vector<std::uint64_t> JobJournal::create_all(std::vector<NewJob> jobs) {
    for (auto& event : jobs | std::views::transform(&NewJob::events) | std::views::join) {
        event.created_at = now_text();
    }
    std::vector<std::uint64_t> numbers;
    try {
        numbers = store_->create_all(jobs);
    } catch (const ErrorException& error) {
        refused(error.what());
        throw;
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        StoredJob& stored = jobs[i].stored;
        stored.number = numbers[i];
        stored.job.spec_json = stored.job.resolved_spec_json = stored.job.asked_json = "";
        auto& live = live_[stored.job.id];
        live.stored_state = stored.job.state;
        live.stored = stored;
        count_state(std::nullopt, live.stored_state);
        show(stored.job.id, live);
    }
    return numbers;
}

const StoredJob* JobJournal::revive(const std::string& id, std::shared_ptr<const JobSpec> spec) {
    const auto known = live_.find(id);  // its end is not written yet
    if (known != live_.end()) {
        return &known->second.stored;
    }
    auto stored = store_->get(id);
    if (!stored) {
        return nullptr;
    }
    auto& live = live_[id];
    live.stored_state = state_on_disk(*stored);
    live.stored = *std::move(stored);
    live.stored.spec = std::move(spec);
    live.stored.job.spec_json.clear();
    live.stored.job.resolved_spec_json.clear();
    live.stored.job.checkpoints.clear();
    show(id, live);
    return &live.stored;
}

bool JobJournal::set_metadata(const std::string& id, const std::map<std::string, std::string>& metadata) {
    try {
        if (!store_->set_metadata(id, metadata)) {
            return false;
        }
    } catch (const ErrorException& error) {
        refused(error.what());
        throw;
    }
    if (const auto live = live_.find(id); live != live_.end()) {
        live->second.stored.job.metadata = metadata;
        show(id, live->second);
    } else {
        live_jobs_.ended_job_changed();
    }
    return true;
}

bool JobJournal::remove(const std::vector<std::string>& ids) {
    std::vector<std::optional<StoredJob>> stored;
    for (const auto& id : ids) {
        if (live_.contains(id)) {
            throw ErrorException(io_error("job store: the end of " + id + " is not written yet"));
        }
        stored.push_back(store_->get(id));
    }
    bool removed = false;
    try {
        removed = store_->remove_all(ids);
    } catch (const ErrorException& error) {
        refused(error.what());
        throw;
    }
    for (const auto& job : stored) {
        const auto state = job ? state_on_disk(*job) : std::nullopt;
        count_state(state, std::nullopt);
        if (job && !state) {
            counts_.reset();
        }
    }
    live_jobs_.ended_job_changed();
    return removed;
}

void JobJournal::set_progress(const std::string& id, const ProgressEvent& progress) {
    auto& live = live_.at(id);
    live.stored.job.progress = progress;
    live.progress_unsaved = true;
    show(id, live);
}

void JobJournal::set_evaluation(const std::string& id, const EvaluationEvent& evaluation) {
    auto& live = live_.at(id);
    live.stored.job.eval_loss = evaluation.loss;
    live.stored.job.eval_kl = evaluation.kl;
    live.stored.job.eval_top1_agreement = evaluation.top1_agreement;
    live.stored.job.eval_acceptance_rate = evaluation.acceptance_rate;
    live.evaluation_unsaved = true;
    show(id, live);
}

void JobJournal::add_checkpoint(const std::string& id, api::JobCheckpoint checkpoint) {
    auto& live = live_.at(id);
    put_checkpoint(live.unsaved_checkpoints, std::move(checkpoint));
    show(id, live);
}

void JobJournal::set_resolved_spec(const std::string& id, std::string spec_json, std::shared_ptr<const JobSpec> spec) {
    auto& live = live_.at(id);
    live.stored.job.resolved_spec_json = std::move(spec_json);
    live.stored.spec = std::move(spec);
    show(id, live);
}

StoredJob& JobJournal::edit(const std::string& id) {
    auto& live = live_.at(id);
    live.state_unsaved = true;
    edited_.insert(id);
    return live.stored;
}

void JobJournal::show(const std::string& id, Live& live) {
    count_wait(live, wait_of(live.stored.job));
    live_jobs_.put(id, {live.stored.job, live.unsaved_checkpoints});
}

api::Job JobJournal::with_newest(api::Job stored) const {
    const auto live = live_jobs_.find(stored.id);  // before `stored` is moved: arguments are evaluated in any order
    return newest(live.get(), std::move(stored));
}

}  // namespace distilld

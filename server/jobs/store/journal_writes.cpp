// The events of a JobJournal on their way to the disk, which may refuse them.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "server/jobs/store/job_journal.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

/// Old events of a job are dropped once per so many events.
constexpr std::uint64_t kDropInterval = 1000;

}  // namespace

void JobJournal::append(const std::string& id, api::JobEvent event) {
    const auto place = live_.find(id);
    if (place == live_.end()) {
        return;
    }
    auto& live = place->second;
    event.created_at = now_text();
    const auto before = live.unsaved_events.size();
    live.unsaved_events.push_back(std::move(event));
    make_room(live);
    count_unsaved(id, live, before);
    const bool held = live.held;
    // Readers see a state when its event is in the store, so that nobody finds a job ended whose history goes on. What
    // cannot be written now is shown all the same: retry() writes it with all that waits.
    if (held || trouble_ || !write(id)) {
        show(id, live);
    }
    if (!held) {
        wake_(id);
    }
}

void JobJournal::hold(const std::string& id) {
    if (const auto live = live_.find(id); live != live_.end()) {
        live->second.held = true;
    }
}

void JobJournal::release(const std::string& id) {
    const auto live = live_.find(id);
    if (live == live_.end() || !std::exchange(live->second.held, false) || live->second.unsaved_events.empty()) {
        return;
    }
    if (!trouble_) {
        write(id);
    }
    wake_(id);
}

bool JobJournal::save(const std::string& id) {
    return live_.contains(id) && !trouble_ && write(id);
}

bool JobJournal::write(const std::string& id) {
    auto& live = live_.at(id);
    const auto kept = live.unsaved_events.size();
    if (live.lost_events > 0) {
        auto& note = live.unsaved_events.emplace_back();
        note.created_at = now_text();
        note.level = "warn";
        note.message = std::to_string(live.lost_events) +
                       " events are missing here: too many occurred while the job store could not be written";
    }
    std::uint64_t sequence = 0;
    try {
        sequence = store_->append_events(id, live.unsaved_events, change_of(live));
    } catch (const ErrorException& error) {
        live.unsaved_events.resize(kept);
        refused(error.what());
        return false;
    }
    if (std::exchange(live.state_unsaved, false)) {
        if (live.stored_state) {
            count_state(live.stored_state, live.stored.job.state);
        } else {
            counts_.reset();
        }
        live.stored_state = live.stored.job.state;
        live.saved_received = live.stored.attempt_received;
    }
    live.progress_unsaved = false;
    live.evaluation_unsaved = false;
    live.unsaved_checkpoints.clear();
    live.stored.job.resolved_spec_json.clear();
    live.unsaved_events.clear();
    count_unsaved(id, live, kept);
    live.lost_events = 0;
    drop_old(id, live, sequence);
    if (api::is_terminal(live.stored.job.state)) {
        count_wait(live, std::nullopt);
        live_.erase(id);
        live_jobs_.erase(id);
    } else {
        show(id, live);
    }
    return true;
}

void JobJournal::drop_old(const std::string& id, Live& live, std::uint64_t sequence) {
    if (sequence <= std::min(metrics_kept_, messages_kept_) || sequence < live.next_drop) {
        return;
    }
    try {
        if (sequence > metrics_kept_) {
            store_->drop_metrics(id, sequence - metrics_kept_);
        }
        store_->drop_messages(id, messages_kept_);
    } catch (const ErrorException& error) {
        refused(error.what());
        return;
    }
    live.next_drop = sequence + kDropInterval;
}

void JobJournal::make_room(Live& live) {
    auto& events = live.unsaved_events;
    if (events.size() <= kMaxUnsavedEvents) {
        return;
    }
    const auto of_metrics = [](const auto& event) { return event.type == api::EventType::metrics; };
    const auto no_state = [](const auto& event) { return event.type != api::EventType::state; };
    auto gone = std::find_if(events.begin(), events.end(), of_metrics);
    if (gone == events.end()) {
        gone = std::find_if(events.begin(), events.end(), no_state);
    }
    events.erase(gone == events.end() ? events.begin() : gone);
    ++live.lost_events;
}

void JobJournal::refused(const std::string& why) {
    if (trouble_) {
        return;
    }
    trouble_ = true;
    log::error("jobs", "the job store cannot be written, events are kept in memory: " + why);
    live_jobs_.set_trouble(
        api::StatusReason{"store_unavailable", "the job store cannot be written: " + why, now_text()});
    if (on_trouble_) {
        on_trouble_();
    }
}

void JobJournal::retry() {
    for (const auto& id : std::vector(unsaved_.begin(), unsaved_.end())) {
        if (!write(id)) {
            return;
        }
        wake_(id);
    }
    try {
        store_->try_write();
    } catch (const ErrorException&) {
        return;
    }
    if (std::exchange(trouble_, false)) {
        log::info("jobs", "the job store can be written again");
        live_jobs_.set_trouble(std::nullopt);
    }
}

bool JobJournal::is_saved(const std::string& id) const {
    const auto live = live_.find(id);
    return live == live_.end() || live->second.unsaved_events.empty();
}

JobChange JobJournal::change_of(const Live& live) {
    JobChange change;
    const auto& job = live.stored.job;
    change.state = live.state_unsaved ? &live.stored : nullptr;
    change.progress = live.progress_unsaved && job.progress ? &*job.progress : nullptr;
    change.evaluation = live.evaluation_unsaved ? &job : nullptr;
    change.resolved_spec = job.resolved_spec_json.empty() ? nullptr : &job.resolved_spec_json;
    change.checkpoints = live.unsaved_checkpoints;
    return change;
}

}  // namespace distilld

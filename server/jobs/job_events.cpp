#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "server/jobs/job_manager_core.hpp"

/// Answers questions about jobs from the store and from the board, since the manager's thread may be waiting for a
/// disk.
namespace distilld {

namespace asio = boost::asio;

asio::awaitable<std::optional<api::Job>> JobManager::get(std::string id) {
    return run_on(core_->reading_thread.get_executor(),
                  [core = core_.get(), id = std::move(id)] { return core->get(id); });
}

JobVersion JobManager::version_of(const std::string& id) const {
    return core_->journal.live_jobs().version_of(id);
}

asio::awaitable<JobListing> JobManager::list(JobQuery query) {
    return run_on(core_->reading_thread.get_executor(),
                  [core = core_.get(), query = std::move(query)] { return core->list(query); });
}

asio::awaitable<std::optional<std::vector<MetricSeries>>> JobManager::metrics(std::string id, SeriesQuery query) {
    return run_on(
        core_->history_thread.get_executor(),
        [core = core_.get(), id = std::move(id), query = std::move(query)] { return core->measurements(id, query); });
}

asio::awaitable<std::optional<std::vector<api::JobCheckpoint>>> JobManager::checkpoints(std::string id) {
    return run_on(core_->reading_thread.get_executor(),
                  [core = core_.get(), id = std::move(id)] { return core->checkpoints(id); });
}

asio::awaitable<EventBatch> JobManager::events(std::string id, std::uint64_t after, std::uint32_t limit) {
    return run_on(core_->reading_thread.get_executor(), [core = core_.get(), id = std::move(id), after, limit] {
        return core->batch_of(id, core->reader->events(id, after, limit));
    });
}

asio::awaitable<EventBatch> JobManager::events_before(std::string id, std::uint64_t before, std::uint32_t limit) {
    return run_on(core_->reading_thread.get_executor(), [core = core_.get(), id = std::move(id), before, limit] {
        return core->batch_of(id, core->reader->events_before(id, before, limit));
    });
}

asio::awaitable<EventBatch> JobManager::wait_events(std::string id, std::uint64_t after, std::uint32_t limit) {
    co_return co_await asio::co_spawn(core_->io, core_->wait_events(std::move(id), after, limit), asio::use_awaitable);
}

asio::awaitable<EventBatch> JobManager::Core::wait_events(std::string id, std::uint64_t after, std::uint32_t limit) {
    auto batch = read_events(id, after, limit);
    if (batch.ended || !batch.events.empty()) {
        co_return batch;
    }
    co_await waiters.wait(id, std::chrono::steady_clock::now() + options.heartbeat);
    co_return read_events(id, after, limit);
}

EventBatch JobManager::Core::read_events(const std::string& id, std::uint64_t after, std::uint32_t limit) {
    EventBatch batch;
    const auto state = journal.state_of(id);
    if (!state) {
        batch.found = false;
        batch.ended = true;
        return batch;
    }
    auto page = journal.events(id, after, limit);
    batch.events = std::move(page.events);
    batch.has_more = page.has_more;
    if (batch.has_more) {
        return batch;
    }
    if (api::is_terminal(*state)) {
        if (!journal.is_saved(id)) {
            return batch;  // its last events will follow
        }
        batch.ended = true;
        batch.job = journal.get(id);
    } else {
        batch.ended = table.stopping() && !table.is_running(id);
    }
    return batch;
}

std::optional<api::Job> JobManager::Core::get(const std::string& id) {
    const auto& live_jobs = journal.live_jobs();
    const auto live = live_jobs.find(id);
    auto stored = reader->get(id);
    if (!stored) {
        return std::nullopt;
    }
    auto job = newest(live.get(), std::move(stored->job));
    live_jobs.complete(job);
    return job;
}

JobListing JobManager::Core::list(const JobQuery& query) {
    JobListing listing;
    if (!query.after.empty() && !reader->get(query.after)) {
        listing.unknown_after = true;
        return listing;
    }
    const auto& live_jobs = journal.live_jobs();
    auto page = reader->list(query);
    listing.has_more = page.has_more;
    for (auto& stored : page.jobs) {
        const auto live = live_jobs.find(stored.job.id);
        if (!live && !api::is_terminal(stored.job.state)) {
            // It has ended since the page was read; its end was written before it left the board.
            auto again = reader->get(stored.job.id);
            if (!again) {
                continue;
            }
            stored = *std::move(again);
        }
        auto job = newest(live.get(), std::move(stored.job));
        live_jobs.complete(job);
        listing.jobs.push_back(std::move(job));
    }
    return listing;
}

std::optional<std::vector<api::JobCheckpoint>> JobManager::Core::checkpoints(const std::string& id) {
    const auto live = journal.live_jobs().find(id);
    auto all = reader->checkpoints(id);
    if (all.empty() && !reader->get(id)) {
        return std::nullopt;
    }
    for (const auto& checkpoint : live ? live->unsaved_checkpoints : std::vector<api::JobCheckpoint>()) {
        put_checkpoint(all, checkpoint);
    }
    return all;
}

std::optional<std::vector<MetricSeries>> JobManager::Core::measurements(const std::string& id,
                                                                        const SeriesQuery& query) {
    SeriesCollector collector(query);
    bool found = false;
    history_reader->measurements(id, [&](const api::JobEvent& event) {
        found = true;
        collector.add(event);
    });
    if (!found && !history_reader->get(id)) {
        return std::nullopt;
    }
    return collector.take();
}

EventBatch JobManager::Core::batch_of(const std::string& id, EventPage page) {
    EventBatch batch;
    batch.found = !page.events.empty() || reader->get(id).has_value();
    batch.events = std::move(page.events);
    batch.has_more = page.has_more;
    return batch;
}

}  // namespace distilld

#include "server/jobs/job_views.hpp"

#include <utility>

#include "pipeline/async/run_on.hpp"

namespace distilld {

namespace asio = boost::asio;

JobViews::JobViews(std::unique_ptr<JobReader> reader, std::unique_ptr<JobReader> history_reader, const JobBoard& board)
    : reader_(std::move(reader)), history_reader_(std::move(history_reader)), board_(board) {}

asio::awaitable<std::optional<api::Job>> JobViews::get(std::string id) {
    return run_on(thread_.get_executor(), [this, id = std::move(id)] { return get_now(id); });
}

asio::awaitable<JobListing> JobViews::list(JobQuery query) {
    return run_on(thread_.get_executor(), [this, query = std::move(query)] { return list_now(query); });
}

asio::awaitable<EventBatch> JobViews::events(std::string id, std::uint64_t after, std::uint32_t limit) {
    return run_on(thread_.get_executor(),
                  [this, id = std::move(id), after, limit] { return batch_of(id, reader_->events(id, after, limit)); });
}

asio::awaitable<EventBatch> JobViews::events_before(std::string id, std::uint64_t before, std::uint32_t limit) {
    return run_on(thread_.get_executor(), [this, id = std::move(id), before, limit] {
        return batch_of(id, reader_->events_before(id, before, limit));
    });
}

asio::awaitable<std::optional<std::vector<api::JobCheckpoint>>> JobViews::checkpoints(std::string id) {
    return run_on(thread_.get_executor(), [this, id = std::move(id)] { return checkpoints_now(id); });
}

std::optional<std::vector<api::JobCheckpoint>> JobViews::checkpoints_now(const std::string& id) {
    const auto live = board_.find(id);
    auto all = reader_->checkpoints(id);
    if (all.empty() && !reader_->get(id)) {
        return std::nullopt;
    }
    for (const auto& checkpoint : live ? live->unsaved_checkpoints : std::vector<api::JobCheckpoint>()) {
        put_checkpoint(all, checkpoint);
    }
    return all;
}

asio::awaitable<std::optional<std::vector<MetricSeries>>> JobViews::metrics(std::string id, SeriesQuery query) {
    return run_on(history_thread_.get_executor(),
                  [this, id = std::move(id), query = std::move(query)] { return metrics_now(id, query); });
}

std::optional<std::vector<MetricSeries>> JobViews::metrics_now(const std::string& id, const SeriesQuery& query) {
    SeriesCollector collector(query);
    bool found = false;
    history_reader_->measurements(id, [&](const api::JobEvent& event) {
        found = true;
        collector.add(event);
    });
    if (!found && !history_reader_->get(id)) {
        return std::nullopt;
    }
    return collector.take();
}

std::optional<api::Job> JobViews::get_now(const std::string& id) {
    const auto live = board_.find(id);
    auto stored = reader_->get(id);
    if (!stored) {
        return std::nullopt;
    }
    auto job = newest(live.get(), std::move(stored->job));
    board_.complete(job);
    return job;
}

JobListing JobViews::list_now(const JobQuery& query) {
    JobListing listing;
    if (!query.after.empty() && !reader_->get(query.after)) {
        listing.unknown_after = true;
        return listing;
    }
    auto page = reader_->list(query);
    listing.has_more = page.has_more;
    for (auto& stored : page.jobs) {
        const auto live = board_.find(stored.job.id);
        if (!live && !api::is_terminal(stored.job.state)) {
            // It has ended since the page was read, and its end was written before it left the board.
            auto again = reader_->get(stored.job.id);
            if (!again) {
                continue;
            }
            stored = *std::move(again);
        }
        auto job = newest(live.get(), std::move(stored.job));
        board_.complete(job);
        listing.jobs.push_back(std::move(job));
    }
    return listing;
}

EventBatch JobViews::batch_of(const std::string& id, EventPage page) {
    EventBatch batch;
    batch.found = !page.events.empty() || reader_->get(id).has_value();
    batch.events = std::move(page.events);
    batch.has_more = page.has_more;
    return batch;
}

}  // namespace distilld

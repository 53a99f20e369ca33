#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/jobs/job_answers.hpp"
#include "server/jobs/job_board.hpp"
#include "server/jobs/job_store.hpp"
#include "server/jobs/metric_series.hpp"

namespace distilld {

/// Answers those who ask how jobs are, on a thread and a connection of its own: the manager's thread may wait for a
/// disk meanwhile. What takes longer has another of each, so that it holds up no question about a state. The coroutines
/// run on the caller's executor. Failures of the store come out as ErrorException.
class JobViews {
  public:
    /// `board` must outlive it.
    JobViews(std::unique_ptr<JobReader> reader, std::unique_ptr<JobReader> history_reader, const JobBoard& board);

    boost::asio::awaitable<std::optional<api::Job>> get(std::string id);
    boost::asio::awaitable<JobListing> list(JobQuery query);
    /// Without `ended` and `job`.
    boost::asio::awaitable<EventBatch> events(std::string id, std::uint64_t after, std::uint32_t limit);
    /// The same way, newest first.
    boost::asio::awaitable<EventBatch> events_before(std::string id, std::uint64_t before, std::uint32_t limit);

    /// All that the job has written, oldest first. Nothing: no such job.
    boost::asio::awaitable<std::optional<std::vector<api::JobCheckpoint>>> checkpoints(std::string id);

    /// Nothing: no such job.
    boost::asio::awaitable<std::optional<std::vector<MetricSeries>>> metrics(std::string id, SeriesQuery query);

  private:
    std::optional<api::Job> get_now(const std::string& id);
    JobListing list_now(const JobQuery& query);
    std::optional<std::vector<api::JobCheckpoint>> checkpoints_now(const std::string& id);
    EventBatch batch_of(const std::string& id, EventPage page);

    std::optional<std::vector<MetricSeries>> metrics_now(const std::string& id, const SeriesQuery& query);

    std::unique_ptr<JobReader> reader_;
    std::unique_ptr<JobReader> history_reader_;
    const JobBoard& board_;
    boost::asio::thread_pool thread_{1};
    boost::asio::thread_pool history_thread_{1};
};

}  // namespace distilld

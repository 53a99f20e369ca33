#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "base/error.hpp"
#include "base/job_attempt.hpp"
#include "server/supervisor/slurm/slurm_queue.hpp"

namespace distilld::slurm {

struct PlaceOptions {
    JobAttempt attempt;
    std::shared_ptr<const JobSpec> spec;
    std::vector<std::string> command;  ///< what runs on the first node
    std::string log;                   ///< file for its output, on a file system that the nodes share
};

/// A Slurm job for one attempt. Commands and queue must outlive it. One executor.
class Place {
  public:
    Place(const Commands& commands, Queue& queue, PlaceOptions options);

    /// Submits the job; it may wait in Slurm's queue. If this fails or is cancelled, call cancel(): Slurm may have
    /// accepted the job.
    boost::asio::awaitable<Result<void>> begin();
    /// Instead of begin(), the job that an earlier service has submitted.
    void adopt(std::uint64_t id) { id_ = id; }
    /// Slurm's id of the job, to be stored; nullopt before begin().
    [[nodiscard]] std::optional<std::uint64_t> id() const { return id_; }

    /// Waits until the job has ended. `waits`: see Queue::ended().
    boost::asio::awaitable<JobEnd> ended(PlaceWait waits = {});

    /// Ends the job: SIGTERM, and after Slurm's KillWait SIGKILL. Nothing if it has ended.
    boost::asio::awaitable<Result<void>> cancel();

  private:
    const Commands& commands_;
    Queue& queue_;
    PlaceOptions options_;
    std::string name_;
    std::optional<std::uint64_t> id_;
};

}  // namespace distilld::slurm

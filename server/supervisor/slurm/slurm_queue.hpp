#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/job_attempt.hpp"
#include "server/supervisor/launcher.hpp"
#include "server/supervisor/place.hpp"
#include "server/supervisor/slurm/shared_answer.hpp"
#include "server/supervisor/slurm/slurm_commands.hpp"
#include "server/supervisor/slurm/slurm_state.hpp"

namespace distilld::slurm {

/// The name of the Slurm job of an attempt, and the job of such a name.
[[nodiscard]] std::string job_name(const JobAttempt& attempt);
[[nodiscard]] std::optional<std::string> job_of(std::string_view name);

/// Between two calls of squeue, and of sinfo.
inline constexpr std::chrono::milliseconds kQueueInterval{2000};

/// Watches Slurm jobs and machines, with one squeue for all jobs. It only runs while somebody waits. The commands must
/// outlive it. One executor.
class Queue {
  public:
    Queue(const Commands& commands, boost::asio::any_io_executor executor,
          std::chrono::milliseconds interval = kQueueInterval);

    /// Waits for the end of the job. It has ended if Slurm says so, or if two lists in a row lack it and scontrol does
    /// not know it either. While Slurm does not answer, nothing has ended. `log`: the file with the output of its
    /// script. `waits`: told of each new reason while the job waits to be started, and of an empty one when it is; may
    /// be empty.
    boost::asio::awaitable<JobEnd> ended(std::uint64_t id, std::string log, PlaceWait waits = {});

    /// The machines, and which of the jobs `running` each has.
    boost::asio::awaitable<Result<std::vector<Node>>> nodes(std::vector<std::string> running);

  private:
    boost::asio::awaitable<Result<std::vector<QueueEntry>>> ask_queue();

    const Commands& commands_;
    SharedAnswer<std::vector<QueueEntry>> jobs_;
    SharedAnswer<std::vector<Node>> nodes_;
    bool silent_ = false;  ///< squeue failed
};

}  // namespace distilld::slurm

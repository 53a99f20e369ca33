#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace distilld::slurm {

/// Why a Slurm job has ended.
enum class EndCause {
    worker,       ///< its script ended, in whatever way
    memory,       ///< it used more than it was given
    node,         ///< its node failed
    preempted,    ///< for the sake of another job
    time_limit,   ///< of the job or its partition
    cancelled,    ///< with scancel
    not_started,  ///< it never ran
};

/// The end of a Slurm job.
struct JobEnd {
    EndCause cause = EndCause::worker;
    std::string words;  ///< for people: "Slurm job 12 reached its time limit"

    /// The kind of FailedEvent for a worker that ended with the job and did not report.
    [[nodiscard]] const char* failure_kind() const;
};

/// What Slurm says of a job.
struct JobRecord {
    std::string state;  ///< as squeue's %T
    int exit_code = 0;
    int signal = 0;  ///< that ended its script; 0 = none
};

/// Whether a job in this state (squeue's %T) has ended. A state that we do not know is not an end.
[[nodiscard]] bool is_end(std::string_view state);

/// `record`: in a state that is an end; nullopt: Slurm does not know the job any more. `log`: the file with the output
/// of the script.
[[nodiscard]] JobEnd end_of(std::uint64_t id, const std::optional<JobRecord>& record, const std::string& log);

}  // namespace distilld::slurm

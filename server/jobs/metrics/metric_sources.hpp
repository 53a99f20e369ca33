#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/job_types.hpp"
#include "server/supervisor/remote_attempts.hpp"
#include "server/support/metrics.hpp"
#include "server/support/process_metrics.hpp"

/// The data that the rows of the service's metrics read.
namespace distilld {

/// Checkpoints that a run has written.
struct CheckpointCounts {
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    DurationCounts seconds;
};

struct NewestCheckpoint {
    std::uint64_t step = 0;
    std::uint64_t bytes = 0;
    double time = 0;  ///< Unix time of its report; 0 = there is none
};

/// One run of a job. Until the run reports something, the newest values are those of the last run.
struct JobRun {
    std::uint64_t first_step = 0;          ///< steps done before it began
    std::uint64_t micro_batch_tokens = 0;  ///< input positions of one micro-batch
    std::uint32_t replicas = 0;            ///< micro-batches that train at once; 0: none trains
    std::uint32_t ranks = 0;               ///< workers that train together; 0: none trains
    CheckpointCounts checkpoints;
    ProgressEvent progress;                     ///< the newest
    double last_step_time = 0;                  ///< Unix time of the last reported step; 0 = none yet
    std::optional<EvaluationEvent> evaluation;  ///< the newest, without its samples
    FiguresEvent figures;                       ///< the newest without a problem
    /// Runs of eval.command, by result.
    std::map<std::string, std::uint64_t> eval_programs{{"figures", 0}, {"failed", 0}};
    NewestCheckpoint newest_checkpoint;
};

struct StoreCounts {
    bool writable = true;
    std::uint64_t unsaved_events = 0;
    std::uint64_t size_bytes = 0;
};

/// Machines in one state.
struct NodeCounts {
    std::uint64_t nodes = 0;
    std::uint64_t with_jobs = 0;  ///< of this service
    std::uint64_t cores = 0;
};

/// What the service counts besides its runs.
struct ServiceCounts {
    std::string version;
    std::map<api::JobState, std::uint64_t> jobs;      ///< in the store
    std::map<api::JobState, std::uint64_t> finished;  ///< since the service started
    std::map<std::string, std::uint64_t> waiting;     ///< by the code of the reason
    std::map<std::string, std::uint32_t> slots;       ///< by state; empty: there are none
    std::map<std::string, NodeCounts> nodes;          ///< by state; empty: not known
    std::map<std::string, std::uint64_t> attempts;    ///< that run on a node, by its name
    std::uint64_t worker_restarts = 0;
    std::uint64_t worker_oom_restarts = 0;
    /// By result.
    std::map<std::string, std::uint64_t> webhook_attempts{{"delivered", 0}, {"retried", 0}, {"given_up", 0}};
    std::optional<StoreCounts> store;                      ///< nullopt: there is none
    std::vector<std::pair<std::string, DiskUsage>> disks;  ///< by job; the job of the service itself is empty
    Histogram queue_waits;                                 ///< seconds
    std::map<LabelValues, double> http_requests;           ///< by code, method, route
    std::map<LabelValues, Histogram> http_durations;       ///< seconds, by code, route
    LinkCounts links;                                      ///< to workers on other machines
};

}  // namespace distilld

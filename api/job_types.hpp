#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "base/enum_names.hpp"
#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"

/// The REST API's objects of jobs, and their JSON (the service writes it, the command line reads it). Their fields are
/// described in api/job_fields.hpp and, for the worker's events, in pipeline/core/event_fields.hpp.
namespace distilld::api {

using distilld::to_string;

using distilld::JobKind;

/// pausing: the worker writes a checkpoint and ends. paused: the job waits for the user, without a worker.
enum class JobState { queued, running, pausing, paused, succeeded, failed, cancelled };
BOOST_DESCRIBE_ENUM(JobState, queued, running, pausing, paused, succeeded, failed, cancelled)

/// "is queued", "has already succeeded": the state as a predicate.
[[nodiscard]] std::string said_of(JobState state);
[[nodiscard]] constexpr bool is_terminal(JobState state) noexcept {
    return state == JobState::succeeded || state == JobState::failed || state == JobState::cancelled;
}

/// Why a job is in its state: `code` for programs, `message` for people. api/openapi.yaml lists the codes: those of
/// jobs that have ended or were stopped (invalid_input, cancelled_by_user…), and those of jobs that wait for something
/// (waiting_for_slot, disk_full…). A failure has the code of the ErrorKind that its worker reports (base/error.hpp).
struct StatusReason {
    std::string code;
    std::string message;
    std::string since = {};  ///< RFC 3339: when a wait began; empty = not waiting
};

inline constexpr std::int32_t kLowestPriority = -100;
inline constexpr std::int32_t kHighestPriority = 100;

struct JobCheckpoint {
    std::uint64_t step = 0;
    std::string folder;
    double seconds = 0;  ///< time that writing took
    std::string created_at;
    std::optional<std::uint64_t> bytes{};  ///< size of its files; nullopt: unknown
};

/// A job as clients see it. Times are RFC 3339 in UTC with milliseconds.
struct Job {
    static constexpr std::uint32_t kMaxShown = 16;

    std::string id;
    JobKind kind = JobKind::train;
    std::string name;
    std::string owner;                            ///< name of the key that submitted it; empty = unknown
    std::map<std::string, std::string> metadata;  ///< the client's own pairs
    JobState state = JobState::queued;
    bool cancel_requested = false;  ///< running, asked to stop; a checkpoint is being written
    std::string created_at;
    std::string started_at;     ///< start of the last run; empty = not yet
    std::string finished_at;    ///< empty = not yet
    std::uint64_t attempt = 0;  ///< number of the last start of its worker, from 1; 0 = not yet
    std::optional<StatusReason> status_reason;
    std::optional<std::uint32_t> task{};          ///< of several that fill one store: its number, from 0
    std::string task_of{};                        ///< id of task 0, unless it is that; empty: not a task
    std::vector<std::string> tasks{};             ///< of task 0: the ids of all tasks, by number
    std::int32_t priority = 0;                    ///< kLowestPriority to kHighestPriority; higher runs first
    std::optional<std::uint64_t> queue_position;  ///< 1 = next; queued jobs only
    /// Limit of requests in flight, changed after the submission; nullopt: the spec's.
    std::optional<std::uint32_t> max_concurrent;
    std::optional<std::uint32_t> slot{};  ///< the service's slot, from 0; nullopt: the job does not run
    std::vector<std::uint32_t> cores{};   ///< the slot's cores; empty = it shares all, or the job does not run
    std::string device{};                 ///< the slot's GPU, as in CUDA_VISIBLE_DEVICES; empty = none
    std::optional<ProgressEvent> progress;
    std::string dtype;                          ///< effective dtype of the last run; empty = not yet
    std::optional<double> eval_loss;            ///< newest held-out loss
    std::optional<double> eval_kl;              ///< newest KL from the teacher, on held-out rows
    std::optional<double> eval_top1_agreement;  ///< newest share of held-out positions with the teacher's top token
    /// Newest share of the student's drafted tokens that the teacher would accept, on held-out rows.
    std::optional<double> eval_acceptance_rate;
    std::optional<double> exported_eval_loss;   ///< loss of the weights as rounded by an export below fp32
    std::string output;                         ///< absolute folder
    std::string weights_sha256;                 ///< of the exported model; empty before success
    std::vector<JobCheckpoint> checkpoints;     ///< the newest ones, oldest first
    std::uint64_t checkpoints_total = 0;        ///< ever written; their folders may be gone
    std::uint32_t max_checkpoints = kMaxShown;  ///< limit of `checkpoints`. Not part of the JSON
    std::string spec_json;                      ///< as submitted
    std::string resolved_spec_json;             ///< every default filled in, paths absolute
    std::string owner_id{};  ///< id of the submitter's key; empty = only administrators. Not part of the JSON
    /// The original request if the job was submitted through the OpenAI API; else empty. Not part of the JSON.
    std::string asked_json;
};

enum class EventType { message, metrics, state, checkpoint, evaluation, figures, rollout };
BOOST_DESCRIBE_ENUM(EventType, message, metrics, state, checkpoint, evaluation, figures, rollout)

/// One line of a job's history. Sequences count from 1 within a job, without gaps unless old metrics were dropped.
struct JobEvent {
    std::uint64_t sequence = 0;
    std::string created_at;
    std::string level = "info";  ///< info, warn, error
    EventType type = EventType::message;
    std::string message;
    boost::json::object data;  ///< metrics: {step, total_steps, loss, …}; state: {state}; checkpoint: {step, folder}
};

/// {"object":"job", …}. Absent times, reasons, losses and numbers that are not finite are null. `with_specs` adds
/// `spec` and `resolved_spec` (for single jobs, not lists).
[[nodiscard]] boost::json::object to_json_object(const Job& job, bool with_specs);
[[nodiscard]] Result<Job> job_from_json(const boost::json::value& json);

[[nodiscard]] boost::json::object to_json_object(const JobEvent& event);
[[nodiscard]] Result<JobEvent> job_event_from_json(const boost::json::value& json);

/// Progress with `percent` added. When reading, missing members keep their defaults (NaN for losses that were not
/// finite).
[[nodiscard]] boost::json::object to_json_object(const ProgressEvent& progress);
[[nodiscard]] Result<ProgressEvent> progress_from_json(const boost::json::value& json);

/// 2026-01-31T12:34:56.789Z
[[nodiscard]] std::string rfc3339(std::chrono::system_clock::time_point time);
/// Parses only what rfc3339() writes; nullopt for other text.
[[nodiscard]] std::optional<std::chrono::system_clock::time_point> parse_rfc3339(const std::string& text);

}  // namespace distilld::api

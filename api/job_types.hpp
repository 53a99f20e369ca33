#pragma once

#include <array>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.hpp"
#include "base/error.hpp"
#include "pipeline/core/job_spec.hpp"
#include "pipeline/core/worker_events.hpp"

/// What the REST API says of jobs, and its JSON form, both ways (the service writes it, the command line reads it). The
/// fields are named in api/job_fields.hpp and, those of the worker's events, in pipeline/core/event_fields.hpp.
namespace distilld::api {

using distilld::to_string;

using distilld::JobKind;

[[nodiscard]] constexpr std::optional<JobKind> job_kind_from_string(std::string_view text) noexcept {
    return enum_from_string<JobKind>(text);
}

/// pausing: the worker was told to checkpoint and end. paused: it waits for the user, without a worker.
enum class JobState { queued, running, pausing, paused, succeeded, failed, cancelled };
inline constexpr std::array kJobStateNames{
    distilld::EnumName<JobState>{"queued", JobState::queued},
    distilld::EnumName<JobState>{"running", JobState::running},
    distilld::EnumName<JobState>{"pausing", JobState::pausing},
    distilld::EnumName<JobState>{"paused", JobState::paused},
    distilld::EnumName<JobState>{"succeeded", JobState::succeeded},
    distilld::EnumName<JobState>{"failed", JobState::failed},
    distilld::EnumName<JobState>{"cancelled", JobState::cancelled},
};
constexpr const auto& enum_names(JobState) {
    return kJobStateNames;
}
[[nodiscard]] constexpr std::optional<JobState> job_state_from_string(std::string_view text) noexcept {
    return enum_from_string<JobState>(text);
}
/// "is queued", "has already succeeded": what is said of a job that is in this state.
[[nodiscard]] std::string said_of(JobState state);
[[nodiscard]] constexpr bool is_terminal(JobState state) noexcept {
    return state == JobState::succeeded || state == JobState::failed || state == JobState::cancelled;
}

/// Why a job is in the state it is in: `code` for programs, `message` for people. api/openapi.yaml lists the codes
/// (invalid_input, cancelled_by_user…): those of jobs that have ended or were stopped, and those of jobs that wait for
/// something (waiting_for_slot, disk_full…). A failure has the code that its worker tells, of an ErrorKind
/// (base/error.hpp).
struct StatusReason {
    std::string code;
    std::string message;
    std::string since = {};  ///< RFC 3339: when a wait began; empty = not a wait
};

inline constexpr std::int32_t kLowestPriority = -100;
inline constexpr std::int32_t kHighestPriority = 100;

struct JobCheckpoint {
    std::uint64_t step = 0;
    std::string folder;
    double seconds = 0;  ///< that writing took
    std::string created_at;
    std::optional<std::uint64_t> bytes{};  ///< of its files; nothing: not known
};

/// A job as clients see it. Times are RFC 3339 in UTC with milliseconds.
struct Job {
    static constexpr std::uint32_t kMaxShown = 16;

    std::string id;
    JobKind kind = JobKind::train;
    std::string name;
    std::string owner;                            ///< name of the key that submitted it; empty = nobody said
    std::map<std::string, std::string> metadata;  ///< texts of the client about the job, kept as they are
    JobState state = JobState::queued;
    bool cancel_requested = false;  ///< running, asked to stop, checkpoint under way
    std::string created_at;
    std::string started_at;   ///< of the last run; empty = not yet
    std::string finished_at;  ///< empty = not yet
    std::optional<StatusReason> status_reason;
    std::int32_t priority = 0;                    ///< kLowestPriority to kHighestPriority; higher ones run first
    std::optional<std::uint64_t> queue_position;  ///< 1 = next; queued jobs only
    /// Ceiling of the requests in flight that was set after the submission; nothing: the spec's.
    std::optional<std::uint32_t> max_concurrent;
    std::optional<std::uint32_t> slot{};  ///< of the service, from 0, while it runs; nothing: it does not
    std::vector<std::uint32_t> cores{};   ///< that it has there; empty = it shares all, or does not run
    std::string device{};                 ///< the GPU that it has there, as CUDA_VISIBLE_DEVICES names it; empty = none
    std::optional<ProgressEvent> progress;
    std::string dtype;                          ///< of the last run's arithmetic, as it was resolved; empty = not yet
    std::optional<double> eval_loss;            ///< newest held-out loss
    std::optional<double> eval_kl;              ///< newest KL from the teacher, on held-out rows
    std::optional<double> eval_top1_agreement;  ///< newest share of them whose likeliest token is the teacher's
    std::optional<double> exported_eval_loss;   ///< of the weights as an export of less than fp32 rounds them
    std::string output;                         ///< absolute folder
    std::string weights_sha256;                 ///< of the exported model; empty before success
    std::vector<JobCheckpoint> checkpoints;     ///< the newest ones, oldest first
    std::uint64_t checkpoints_total = 0;        ///< that were ever written, in folders that may be gone
    std::uint32_t max_checkpoints = kMaxShown;  ///< of `checkpoints`. Not part of the JSON
    std::string spec_json;                      ///< as submitted
    std::string resolved_spec_json;             ///< every default filled in, paths absolute
    std::string owner_id{};  ///< of the key that submitted it; empty = administrators' alone. Not part of the JSON
    /// What the spec was made of, when it was asked for in OpenAI's terms; empty = it was not. Not part of the JSON.
    std::string asked_json;
};

enum class EventType { message, metrics, state, checkpoint, evaluation };
inline constexpr std::array kEventTypeNames{
    distilld::EnumName<EventType>{"message", EventType::message},
    distilld::EnumName<EventType>{"metrics", EventType::metrics},
    distilld::EnumName<EventType>{"state", EventType::state},
    distilld::EnumName<EventType>{"checkpoint", EventType::checkpoint},
    distilld::EnumName<EventType>{"evaluation", EventType::evaluation},
};
constexpr const auto& enum_names(EventType) {
    return kEventTypeNames;
}

/// One line of a job's history. Sequences count from 1 within a job, without holes unless old metrics were dropped.
struct JobEvent {
    std::uint64_t sequence = 0;
    std::string created_at;
    std::string level = "info";  ///< info, warn, error
    EventType type = EventType::message;
    std::string message;
    boost::json::object data;  ///< metrics: {step, total_steps, loss, …}; state: {state}; checkpoint: {step, folder}
};

/// {"object":"job", …}. Absent times, reasons, losses and numbers that are not finite are null. `with_specs`: also
/// `spec` and `resolved_spec` (single jobs, not lists).
[[nodiscard]] boost::json::object to_json_object(const Job& job, bool with_specs);
[[nodiscard]] Result<Job> job_from_json(const boost::json::value& json);

[[nodiscard]] boost::json::object to_json_object(const JobEvent& event);
[[nodiscard]] Result<JobEvent> job_event_from_json(const boost::json::value& json);

/// Progress with `percent` added. The other way, missing members keep their defaults (NaN for losses that were not
/// finite).
[[nodiscard]] boost::json::object to_json_object(const ProgressEvent& progress);
[[nodiscard]] Result<ProgressEvent> progress_from_json(const boost::json::value& json);

/// 2026-01-31T12:34:56.789Z
[[nodiscard]] std::string rfc3339(std::chrono::system_clock::time_point time);
/// What rfc3339() wrote; nothing for other text.
[[nodiscard]] std::optional<std::chrono::system_clock::time_point> parse_rfc3339(const std::string& text);

}  // namespace distilld::api

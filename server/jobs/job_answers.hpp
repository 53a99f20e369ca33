#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/caller.hpp"
#include "api/job_spec_json.hpp"
#include "api/job_types.hpp"
#include "server/jobs/job_verdict.hpp"

/// What clients ask of a JobManager, and what it answers.
namespace distilld {

struct SubmitRequest {
    std::string spec_json;
    std::string idempotency_key;  ///< empty = none
    bool dry_run = false;
    std::optional<api::Caller> owner{};             ///< who submits; nothing: nobody said
    std::map<std::string, std::string> metadata{};  ///< kept with the job as it is
    std::int32_t priority = 0;                      ///< api::kLowestPriority to api::kHighestPriority
    std::string id{};                               ///< of the job that is made, make_job_id(); empty = the manager's
    std::vector<std::string> own_paths{};  ///< pointers of what the service has put into the spec: nobody named it
    /// See api::Job. A request with a key is the same as an earlier one when this is, or without it the spec.
    std::string asked_json{};
    bool is_admin = false;  ///< the owner may write where jobs of others have written
};

/// Answer to what a client asks. `job` is the job as it is then, except where there is none; of a valid submission what
/// would be queued, without an id.
struct JobOutcome {
    JobVerdict kind = JobVerdict::not_found;
    api::Job job{};
    api::SpecViolations violations{};  ///< of an invalid change or spec, and of places that are taken
};

struct JobListing {
    std::vector<api::Job> jobs;  ///< newest first
    bool has_more = false;
    bool unknown_after = false;  ///< `after` names no job
};

/// What happened after a sequence number.
struct EventBatch {
    bool found = true;                  ///< false: no such job
    std::vector<api::JobEvent> events;  ///< as was asked for; empty: nothing new within the heartbeat
    bool has_more = false;
    bool ended = false;           ///< no event will follow: the job is terminal (`job`) or the service stops
    std::optional<api::Job> job;  ///< set when the job is terminal and all its events have been read
};

}  // namespace distilld

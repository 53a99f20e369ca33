#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/job_spec_json.hpp"
#include "api/job_types.hpp"
#include "server/http/caller.hpp"
#include "server/jobs/table/job_verdict.hpp"

/// What clients ask of a JobManager, and its answers.
namespace distilld {

struct SubmitRequest {
    std::string spec_json;
    std::string idempotency_key;  ///< empty = none
    bool dry_run = false;
    std::optional<http::Caller> owner{};            ///< who submits; empty: unknown
    std::map<std::string, std::string> metadata{};  ///< stored with the job unchanged
    std::int32_t priority = 0;                      ///< api::kLowestPriority to api::kHighestPriority
    std::string id{};                               ///< id of the new job (make_job_id()); empty = the manager makes
                                                    ///< one
    std::vector<std::string> own_paths{};  ///< pointers to fields that the service itself has put into the spec
    /// See api::Job. With an idempotency key, requests are the same if this (or, without it, the spec) is equal.
    std::string asked_json{};
    bool is_admin = false;  ///< the owner may write where others' jobs have written
};

/// "job-" and 96 random bits in hexadecimal.
[[nodiscard]] std::string make_job_id();

/// The answer to a client's request. `job` is the job afterwards, if there is one; for a valid dry run it is what would
/// be queued, without an id.
struct JobOutcome {
    JobVerdict kind = JobVerdict::not_found;
    api::Job job{};
    api::SpecViolations violations{};       ///< of an invalid change or spec, and of claimed places
    std::shared_ptr<const JobSpec> spec{};  ///< valid: the resolved spec
};

struct JobListing {
    std::vector<api::Job> jobs;  ///< newest first
    bool has_more = false;
    bool unknown_after = false;  ///< there is no job with the id `after`
};

/// The events after a sequence number.
struct EventBatch {
    bool found = true;                  ///< false: no such job
    std::vector<api::JobEvent> events;  ///< in the requested order; empty: nothing new within the heartbeat
    bool has_more = false;
    bool ended = false;           ///< no event will follow: the job is terminal (`job`) or the service stops
    std::optional<api::Job> job;  ///< set when the job is terminal and all its events have been read
};

}  // namespace distilld

#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "pipeline/core/job_spec.hpp"
#include "server/jobs/job_answers.hpp"
#include "server/jobs/job_journal.hpp"
#include "server/jobs/job_store.hpp"
#include "server/jobs/job_table.hpp"

namespace distilld {

/// The job that a request asks for, made now: queued, without an id. `spec` is the request's, its paths absolute.
[[nodiscard]] StoredJob new_job(const SubmitRequest& request, const JobSpec& spec);

/// An unfinished job of the store, with its specs, as the table takes it when the service starts.
[[nodiscard]] RestoredJob restored_job(const StoredJob& stored);

/// What a job of the store claims: what its resolved spec names, or at least its output.
[[nodiscard]] PathClaims claims_of_stored(const api::Job& job);

/// The job that was submitted with the request's idempotency key no longer than `lifetime` ago. A dry run has no key.
[[nodiscard]] std::optional<StoredJob> earlier_job(const SubmitRequest& request, JobJournal& journal,
                                                   std::chrono::hours lifetime);

/// Why a job cannot have what it claims: "conflict" where it could have it later, else "path_not_allowed".
[[nodiscard]] api::SpecViolations claim_violation(const ClaimConflict& conflict);

/// "job-" and 96 random bits in hexadecimal.
[[nodiscard]] std::string make_job_id();

}  // namespace distilld

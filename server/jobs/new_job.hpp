#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "pipeline/core/job_spec.hpp"
#include "server/jobs/job_journal.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/job_store.hpp"

namespace distilld {

/// The job that a request asks for, made now: queued, without an id. `spec` is the request's, its paths absolute.
[[nodiscard]] StoredJob new_job(const SubmitRequest& request, const JobSpec& spec);

/// An unfinished job of the store, as the table takes it when the service starts.
[[nodiscard]] RestoredJob restored_job(const StoredJob& stored);

/// The job that was submitted with the request's idempotency key no longer than `lifetime` ago. A dry run has no key.
[[nodiscard]] std::optional<StoredJob> earlier_job(const SubmitRequest& request, JobJournal& journal,
                                                   std::chrono::hours lifetime);

/// Why a folder cannot be the output of another job.
[[nodiscard]] api::SpecViolations output_conflict(const std::string& job_id, const std::string& folder);

/// "job-" and 96 random bits in hexadecimal.
[[nodiscard]] std::string make_job_id();

/// One folder has one name here, whatever links and dots its spec used.
[[nodiscard]] std::string folder_identity(const std::string& folder);

}  // namespace distilld

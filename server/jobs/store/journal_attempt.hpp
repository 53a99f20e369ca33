#pragma once

#include <memory>

#include "base/job_attempt.hpp"
#include "server/jobs/store/job_journal.hpp"
#include "server/supervisor/attempt_record.hpp"

namespace distilld {

/// The record of a job's present attempt in its journal, which must outlive it. Does nothing once the job has ended or
/// has another attempt.
[[nodiscard]] std::shared_ptr<AttemptRecord> make_attempt_record(JobJournal& journal, JobAttempt attempt);

}  // namespace distilld

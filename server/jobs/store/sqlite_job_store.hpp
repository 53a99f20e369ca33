#pragma once

#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "server/jobs/store/job_store.hpp"

namespace distilld {

/// SQLite (WAL, synchronous FULL) in `file`, which is created or brought to the newest schema (job_schema.hpp). Refuses
/// a file that is not a database of ours, or that a newer version wrote.
Result<std::unique_ptr<JobStore>> open_sqlite_job_store(const std::filesystem::path& file);

}  // namespace distilld

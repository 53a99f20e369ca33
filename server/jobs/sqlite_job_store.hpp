#pragma once

#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "server/jobs/job_store.hpp"

namespace distilld {

/// SQLite (WAL, synchronous FULL) in `file`, which is made or brought to the newest schema (job_schema.hpp). Refuses a
/// file that is no database of ours, or one that a newer version wrote.
Result<std::unique_ptr<JobStore>> open_sqlite_job_store(const std::filesystem::path& file);

}  // namespace distilld

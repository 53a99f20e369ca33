#pragma once

#include <cstdint>
#include <span>

#include "server/jobs/sqlite.hpp"

/// The shape of the job store's database, as numbered steps. A file says in its header (user_version) how many of them
/// it has seen; a new one has seen none.
namespace distilld {

struct SchemaStep {
    std::int64_t version = 0;  ///< 1, 2, …: what the file is after it
    const char* sql = nullptr;
};

/// The steps to the newest schema. To change the schema is to add one; none that was ever released may change.
[[nodiscard]] std::span<const SchemaStep> job_schema_steps() noexcept;

/// Brings a file up, each step in a transaction of its own: whatever happens, the file is whole and says which version
/// it is. Refuses files of other programs (a header that is not ours) and of newer versions, before anything is
/// written. Failures are ErrorException (io) that names the file.
void migrate(sqlite::Database& database, std::span<const SchemaStep> steps = job_schema_steps());

}  // namespace distilld

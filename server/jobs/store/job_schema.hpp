#pragma once

#include "server/support/sqlite.hpp"

namespace distilld {

/// Creates the tables of the job store in a new file, in one transaction. Before writing, refuses files of other
/// programs (another application_id in the header) and of other versions of the schema (user_version). Errors:
/// ErrorException (io) that names the file.
void create_job_tables(sqlite::Database& database);

}  // namespace distilld

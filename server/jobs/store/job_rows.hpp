#pragma once

#include <boost/json/value.hpp>
#include <map>
#include <string>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "server/jobs/store/job_store.hpp"
#include "server/support/sqlite.hpp"

/// Jobs as rows of the tables in job_schema.cpp. A table in job_rows.cpp has one row per column.
namespace distilld {

/// SELECT of all columns of a job; WHERE … follows.
[[nodiscard]] std::string select_jobs_text();
/// The job in such a row, without specs and checkpoints. For a damaged row, the readable part, with a reason "damaged"
/// that names the rest; failed, if the state is unreadable.
[[nodiscard]] StoredJob job_of(const sqlite::Statement& row);

[[nodiscard]] std::string insert_job_text();
void bind_new_job(sqlite::Statement& insert, const StoredJob& stored);

/// Writes the columns that change with the state.
[[nodiscard]] std::string update_job_text();
void bind_state(sqlite::Statement& update, const StoredJob& stored);

/// "jobs.state IN ('queued', …)": the states that are not terminal.
[[nodiscard]] std::string is_unfinished();

/// A job's metadata as stored: a JSON object of texts.
[[nodiscard]] std::string metadata_text(const std::map<std::string, std::string>& metadata);

/// Parses JSON text from the store; the error says what is damaged.
template <class T>
[[nodiscard]] Result<T> stored_json(Result<T> (*read)(const boost::json::value&), const std::string& text) {
    constexpr std::size_t kMaxDepth = 64;
    const auto value = parse_json_text(text, kMaxDepth);
    if (!value) {
        return io_error(value.error().reason);
    }
    return read(*value);
}

}  // namespace distilld

#pragma once

#include <boost/json/value.hpp>
#include <map>
#include <string>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "server/jobs/job_store.hpp"
#include "server/support/sqlite.hpp"

/// Jobs as rows of the tables in job_schema.cpp. Each column is one row of a table in job_rows.cpp.
namespace distilld {

/// SELECT of all columns of a job; WHERE … follows.
[[nodiscard]] std::string select_jobs_text();
/// The job of such a row, without specs and checkpoints. Of a damaged row what can be read, with a reason "damaged"
/// that says what cannot; failed, if it is the state.
[[nodiscard]] StoredJob job_of(const sqlite::Statement& row);

[[nodiscard]] std::string insert_job_text();
void bind_new_job(sqlite::Statement& insert, const StoredJob& stored);

/// Writes what a change of state changes.
[[nodiscard]] std::string update_job_text();
void bind_state(sqlite::Statement& update, const StoredJob& stored);

/// "jobs.state IN ('queued', …)": the states that are not terminal.
[[nodiscard]] std::string is_unfinished();

/// The metadata of a job as its column holds it: a JSON object of texts.
[[nodiscard]] std::string metadata_text(const std::map<std::string, std::string>& metadata);

/// JSON text of the store as what it stands for; the error says in what it is damaged.
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

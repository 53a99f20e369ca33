#pragma once

#include <boost/json/value.hpp>
#include <map>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "server/jobs/job_store.hpp"
#include "server/jobs/sqlite.hpp"

/// Jobs as rows of the tables in job_schema.cpp.
namespace distilld {

/// The statement of the job's columns; WHERE … follows.
inline constexpr const char* kSelectJobs =
    "SELECT jobs.id, kind, owner, metadata, name, output, state, cancel_requested, resume, created_at, started_at, "
    "finished_at, reason_code, reason_message, weights_sha256, idempotency_key, progress, eval_loss, reason_since, "
    "exported_eval_loss, dtype, eval_kl, eval_top1_agreement, number, priority, max_concurrent, owner_id "
    "FROM jobs LEFT JOIN job_progress ON job_progress.job_id = jobs.id ";

/// The job of a row of kSelectJobs, without specs and checkpoints. Of a damaged row what can be read, with a reason
/// "damaged" that says what cannot; failed, if it is the state.
[[nodiscard]] StoredJob job_of(const sqlite::Statement& row);

inline constexpr const char* kInsertJob =
    "INSERT INTO jobs (id, kind, owner, metadata, name, output, state, cancel_requested, resume, created_at, "
    "started_at, finished_at, reason_code, reason_message, reason_since, weights_sha256, idempotency_key, "
    "priority, max_concurrent, owner_id) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)";
void bind_new_job(sqlite::Statement& insert, const StoredJob& stored);

/// What a change of state changes.
inline constexpr const char* kUpdateJob =
    "UPDATE jobs SET state = ?2, cancel_requested = ?3, resume = ?4, started_at = ?5, finished_at = ?6, "
    "reason_code = ?7, reason_message = ?8, reason_since = ?9, weights_sha256 = ?10, exported_eval_loss = ?11, "
    "dtype = ?12, priority = ?13, max_concurrent = ?14 "
    "WHERE id = ?1";
void bind_state(sqlite::Statement& update, const StoredJob& stored);

/// "jobs.state IN ('queued', …)": the states that are not terminal.
[[nodiscard]] std::string is_unfinished();

/// The metadata of a job as its column holds it: a JSON object of texts.
[[nodiscard]] std::string metadata_text(const std::map<std::string, std::string>& metadata);

/// NULL for nothing.
void bind_real(sqlite::Statement& statement, int index, const std::optional<double>& number);

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

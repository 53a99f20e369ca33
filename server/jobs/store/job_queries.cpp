#include "server/jobs/store/job_queries.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "server/jobs/store/job_rows.hpp"

namespace distilld {
namespace {

/// Of a row "sequence, document". A damaged event keeps its place.
api::JobEvent event_of(const sqlite::Statement& row) {
    auto read = stored_json(api::job_event_from_json, row.text(1));
    api::JobEvent event;
    if (read) {
        event = *std::move(read);
    } else {
        event.level = "error";
        event.message = "this record is damaged in the store: " + read.error().message;
        event.data["code"] = "damaged";
    }
    event.sequence = static_cast<std::uint64_t>(row.integer(0));
    return event;
}

api::JobCheckpoint checkpoint_of(const sqlite::Statement& row) {
    api::JobCheckpoint checkpoint;
    checkpoint.step = static_cast<std::uint64_t>(row.integer(0));
    checkpoint.folder = row.text(1);
    checkpoint.seconds = row.real(2);
    checkpoint.created_at = row.text(3);
    checkpoint.bytes = row.optional<std::uint64_t>(4);
    return checkpoint;
}

/// For a statement that takes id, sequence and limit.
EventPage page_of(sqlite::Statement& statement, std::string_view id, std::uint64_t sequence, std::uint32_t limit) {
    constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    EventPage page;
    const auto guard = statement.query(id, std::min(sequence, kMax), std::int64_t{limit} + 1);
    while (statement.step()) {
        if (page.events.size() == limit) {
            page.has_more = true;
            break;
        }
        page.events.push_back(event_of(statement));
    }
    return page;
}

}  // namespace

sqlite::Statement select_jobs(sqlite::Database& database, const std::string& tail) {
    return {database, select_jobs_text() + tail};
}

JobQueries::JobQueries(sqlite::Database& database)
    : get_(select_jobs(database, "WHERE id = ?1")),
      list_(select_jobs(database,
                        "WHERE (?1 = '' OR number < (SELECT number FROM jobs WHERE id = ?1)) "
                        "AND (?2 = '' OR state = ?2) AND (?4 = '' OR name = ?4) AND substr(id, 1, length(?6)) = ?6 "
                        "AND (?5 = '{}' OR NOT EXISTS (SELECT 1 FROM json_each(?5) AS wanted WHERE NOT EXISTS "
                        "(SELECT 1 FROM json_each(CASE WHEN json_valid(metadata) THEN metadata ELSE '{}' END) AS has "
                        "WHERE has.key = wanted.key AND has.value = wanted.value))) ORDER BY number DESC LIMIT ?3")),
      // As the index is declared.
      tasks_(database, "SELECT id FROM jobs WHERE task_of = ?1 AND task_of != '' ORDER BY task"),
      specs_(database, "SELECT spec, resolved_spec, asked FROM job_specs WHERE job_id = ?1"),
      checkpoints_(
          database,
          "SELECT step, folder, seconds, created_at, bytes FROM job_checkpoints WHERE job_id = ?1 ORDER BY number"),
      // The folders of older ones are gone (checkpoint.keep).
      newest_checkpoints_(
          database,
          "WITH kept AS (SELECT max(1, min(?2, coalesce(CAST(json_extract(resolved_spec, '$.checkpoint.keep') AS "
          "INTEGER), "
          "?2))) AS most FROM job_specs WHERE job_id = ?1 AND json_valid(resolved_spec)) "
          "SELECT step, folder, seconds, created_at, bytes, (SELECT count(*) FROM job_checkpoints WHERE job_id = ?1), "
          "coalesce((SELECT most FROM kept), ?2) FROM job_checkpoints WHERE job_id = ?1 ORDER BY number DESC "
          "LIMIT coalesce((SELECT most FROM kept), ?2)"),
      events_(database,
              "SELECT sequence, document FROM job_events WHERE job_id = ?1 AND sequence > ?2 ORDER BY sequence "
              "LIMIT ?3"),
      events_before_(database,
                     "SELECT sequence, document FROM job_events WHERE job_id = ?1 AND sequence < ?2 "
                     "ORDER BY sequence DESC LIMIT ?3"),
      measurements_(database,
                    "SELECT sequence, document FROM job_events WHERE job_id = ?1 AND type IN ('metrics', 'evaluation', "
                    "'figures') ORDER BY sequence") {}

std::optional<StoredJob> JobQueries::get(std::string_view id) {
    get_.bind_all(id);
    return one(get_);
}

JobPage JobQueries::list(const JobQuery& query) {
    JobPage page;
    const std::string_view state = query.state ? api::to_string(*query.state) : "";
    const auto guard = list_.query(query.after, state, std::int64_t{query.limit} + 1, query.name,
                                   metadata_text(query.metadata), query.id_prefix);
    while (list_.step()) {
        if (page.jobs.size() == query.limit) {
            page.has_more = true;
            break;
        }
        page.jobs.push_back(whole(list_));
        if (query.with_specs) {
            add_specs(page.jobs.back().job);
        }
    }
    return page;
}

EventPage JobQueries::events(std::string_view id, std::uint64_t after, std::uint32_t limit) {
    return page_of(events_, id, after, limit);
}

EventPage JobQueries::events_before(std::string_view id, std::uint64_t before, std::uint32_t limit) {
    return page_of(events_before_, id, before, limit);
}

void JobQueries::measurements(std::string_view id, const std::function<void(const api::JobEvent&)>& take) {
    const auto guard = measurements_.query(id);
    while (measurements_.step()) {
        take(event_of(measurements_));
    }
}

std::vector<api::JobCheckpoint> JobQueries::checkpoints(std::string_view id) {
    std::vector<api::JobCheckpoint> all;
    const auto guard = checkpoints_.query(id);
    while (checkpoints_.step()) {
        all.push_back(checkpoint_of(checkpoints_));
    }
    return all;
}

std::optional<StoredJob> JobQueries::one(sqlite::Statement& statement) {
    const sqlite::ResetGuard guard(statement);
    if (!statement.step()) {
        return std::nullopt;
    }
    auto stored = whole(statement);
    add_specs(stored.job);
    return stored;
}

void JobQueries::add_specs(api::Job& job) {
    const auto guard = specs_.query(job.id);
    if (specs_.step()) {
        job.spec_json = specs_.text(0);
        job.resolved_spec_json = specs_.text(1);
        job.asked_json = specs_.text(2);
    }
}

StoredJob JobQueries::whole(const sqlite::Statement& row) {
    auto stored = job_of(row);
    const auto guard = newest_checkpoints_.query(stored.job.id, api::Job::kMaxShown);
    while (newest_checkpoints_.step()) {
        stored.job.checkpoints.push_back(checkpoint_of(newest_checkpoints_));
        stored.job.checkpoints_total = static_cast<std::uint64_t>(newest_checkpoints_.integer(5));
        stored.job.max_checkpoints = static_cast<std::uint32_t>(newest_checkpoints_.integer(6));
    }
    std::ranges::reverse(stored.job.checkpoints);
    if (stored.job.task == 0U) {
        stored.job.tasks.push_back(stored.job.id);
        const auto others = tasks_.query(stored.job.id);
        while (tasks_.step()) {
            stored.job.tasks.push_back(tasks_.text(0));
        }
    }
    return stored;
}

}  // namespace distilld

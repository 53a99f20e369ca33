#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "server/jobs/store/job_store.hpp"
#include "server/support/sqlite.hpp"

/// Reads the job store's tables.
namespace distilld {

/// The prepared queries of one connection, for its thread. The database must outlive them.
class JobQueries {
  public:
    explicit JobQueries(sqlite::Database& database);

    [[nodiscard]] std::optional<StoredJob> get(std::string_view id);
    [[nodiscard]] JobPage list(const JobQuery& query);
    [[nodiscard]] EventPage events(std::string_view id, std::uint64_t after, std::uint32_t limit);
    [[nodiscard]] EventPage events_before(std::string_view id, std::uint64_t before, std::uint32_t limit);
    [[nodiscard]] std::vector<api::JobCheckpoint> checkpoints(std::string_view id);
    /// See JobReader.
    void measurements(std::string_view id, const std::function<void(const api::JobEvent&)>& take);
    /// The first job, with specs, of a bound statement of select_jobs_text().
    [[nodiscard]] std::optional<StoredJob> one(sqlite::Statement& statement);
    /// The job in the current row, without specs.
    [[nodiscard]] StoredJob whole(const sqlite::Statement& row);

  private:
    void add_specs(api::Job& job);

    sqlite::Statement get_;
    sqlite::Statement list_;
    sqlite::Statement tasks_;
    sqlite::Statement specs_;
    sqlite::Statement checkpoints_;
    sqlite::Statement newest_checkpoints_;
    sqlite::Statement events_;
    sqlite::Statement events_before_;
    sqlite::Statement measurements_;
};

/// "SELECT … FROM jobs …" with the given tail.
[[nodiscard]] sqlite::Statement select_jobs(sqlite::Database& database, const std::string& tail);

}  // namespace distilld

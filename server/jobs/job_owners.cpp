#include "server/jobs/job_owners.hpp"

#include "server/jobs/sqlite.hpp"

namespace distilld {
namespace {

// Idempotency keys begin with their owner and a line feed.
constexpr const char* kOwnJobs =
    "UPDATE jobs SET owner_id = ?1, idempotency_key = CASE WHEN substr(idempotency_key, 1, length(owner) + 1) = "
    "owner || char(10) THEN ?1 || substr(idempotency_key, length(owner) + 1) ELSE idempotency_key END "
    "WHERE owner = ?2 AND owner_id = '' AND created_at > ?3";
constexpr const char* kOwnFiles =
    "UPDATE files SET owner_id = ?1 WHERE owner = ?2 AND owner_id = '' AND created_at > CAST(strftime('%s', ?3) AS "
    "INTEGER)";

}  // namespace

Result<void> own_by_id(const std::filesystem::path& store, const std::vector<ApiKey>& keys) {
    try {
        sqlite::Database database(store);
        sqlite::Transaction transaction(database);
        for (const char* update : {kOwnJobs, kOwnFiles}) {
            sqlite::Statement statement(database, update);
            for (const ApiKey& key : keys) {
                statement.bind(1, key.id);
                statement.bind(2, key.name);
                statement.bind(3, key.created_at);
                statement.run();
            }
        }
        transaction.commit();
        return {};
    } catch (const ErrorException& error) {
        return error.error();
    }
}

}  // namespace distilld

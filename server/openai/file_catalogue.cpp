#include "server/openai/file_catalogue.hpp"

#include "server/jobs/store/job_rows.hpp"

namespace distilld::openai {
namespace {

constexpr const char* kTable = R"(
CREATE TABLE IF NOT EXISTS files (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    filename TEXT NOT NULL,
    purpose TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    owner_id TEXT NOT NULL
))";

UploadedFile file_of(const sqlite::Statement& row) {
    UploadedFile file;
    file.id = row.text(0);
    file.filename = row.text(1);
    file.purpose = row.text(2);
    file.bytes = static_cast<std::uint64_t>(row.integer(3));
    file.created_at = row.integer(4);
    file.owner_id = row.text(5);
    return file;
}

std::string select(const std::string& tail) {
    return "SELECT id, filename, purpose, bytes, created_at, owner_id, number FROM files " + tail;
}

}  // namespace

FileCatalogue::FileCatalogue(const std::filesystem::path& database)
    : database_(database, kTable),
      insert_(database_,
              "INSERT INTO files (id, filename, purpose, bytes, created_at, owner_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)"),
      get_(database_, select("WHERE id = ?1")),
      ascending_(database_, select("WHERE number > ?1 AND (?2 = '' OR purpose = ?2) ORDER BY number LIMIT ?3")),
      descending_(database_,
                  select("WHERE (?1 = 0 OR number < ?1) AND (?2 = '' OR purpose = ?2) ORDER BY number DESC LIMIT ?3")),
      user_(database_, "SELECT jobs.id FROM jobs JOIN job_specs ON job_specs.job_id = jobs.id WHERE " +
                           is_unfinished() + " AND instr(resolved_spec, ?1) > 0"),
      remove_(database_, "DELETE FROM files WHERE id = ?1") {
    database_.execute("PRAGMA synchronous = FULL");
}

void FileCatalogue::add(const UploadedFile& file) {
    sqlite::Transaction transaction(database_);
    insert_.run(file.id, file.filename, file.purpose, file.bytes, file.created_at, file.owner_id);
    transaction.commit();
}

std::optional<UploadedFile> FileCatalogue::get(const std::string& id) {
    const auto guard = get_.query(id);
    return get_.step() ? std::optional(file_of(get_)) : std::nullopt;
}

FilePage FileCatalogue::list(const FileQuery& query) {
    FilePage page;
    std::int64_t from = 0;  // numbers count from 1
    if (!query.after.empty()) {
        const auto guard = get_.query(query.after);
        if (!get_.step()) {
            page.unknown_after = true;
            return page;
        }
        from = get_.integer(6);
    }
    auto& statement = query.oldest_first ? ascending_ : descending_;
    const auto guard = statement.query(from, query.purpose, std::int64_t{query.limit} + 1);
    while (statement.step()) {
        if (page.files.size() == query.limit) {
            page.has_more = true;
            break;
        }
        page.files.push_back(file_of(statement));
    }
    return page;
}

std::uint64_t FileCatalogue::bytes() {
    return static_cast<std::uint64_t>(database_.query_integer("SELECT coalesce(sum(bytes), 0) FROM files"));
}

std::optional<std::string> FileCatalogue::user_of(const std::string& id, const std::set<std::string>& ended) {
    const auto guard = user_.query("/" + id + "/");
    while (user_.step()) {
        if (auto job = user_.text(0); !ended.contains(job)) {
            return job;
        }
    }
    return std::nullopt;
}

void FileCatalogue::remove(const std::string& id) {
    sqlite::Transaction transaction(database_);
    remove_.run(id);
    transaction.commit();
}

}  // namespace distilld::openai

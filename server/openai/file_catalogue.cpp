#include "server/openai/file_catalogue.hpp"

#include <string_view>

#include "server/jobs/store/job_rows.hpp"
#include "server/support/sqlite.hpp"

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

constexpr const char* kColumns = "SELECT id, filename, purpose, bytes, created_at, owner_id, number FROM files ";

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

class SqliteFileCatalogue final : public FileCatalogue {
  public:
    explicit SqliteFileCatalogue(const std::filesystem::path& database) : database_(database, kTable) {
        database_.execute("PRAGMA synchronous = FULL");
    }

    void add(const UploadedFile& file) override {
        sqlite::Transaction transaction(database_);
        insert_.bind(1, file.id);
        insert_.bind(2, file.filename);
        insert_.bind(3, file.purpose);
        insert_.bind(4, static_cast<std::int64_t>(file.bytes));
        insert_.bind(5, file.created_at);
        insert_.bind(6, file.owner_id);
        insert_.run();
        transaction.commit();
    }

    std::optional<UploadedFile> get(const std::string& id) override {
        const sqlite::ResetGuard guard(get_);
        get_.bind(1, id);
        return get_.step() ? std::optional(file_of(get_)) : std::nullopt;
    }

    FilePage list(const FileQuery& query) override {
        FilePage page;
        std::int64_t from = 0;  // numbers count from 1
        if (!query.after.empty()) {
            const sqlite::ResetGuard guard(get_);
            get_.bind(1, query.after);
            if (!get_.step()) {
                page.unknown_after = true;
                return page;
            }
            from = get_.integer(6);
        }
        auto& statement = query.oldest_first ? ascending_ : descending_;
        const sqlite::ResetGuard guard(statement);
        statement.bind(1, from);
        statement.bind(2, query.purpose);
        statement.bind(3, std::int64_t{query.limit} + 1);
        while (statement.step()) {
            if (page.files.size() == query.limit) {
                page.has_more = true;
                break;
            }
            page.files.push_back(file_of(statement));
        }
        return page;
    }

    std::uint64_t bytes() override {
        return static_cast<std::uint64_t>(database_.query_integer("SELECT coalesce(sum(bytes), 0) FROM files"));
    }

    std::optional<std::string> user_of(const std::string& id, const std::set<std::string>& ended) override {
        const sqlite::ResetGuard guard(user_);
        user_.bind(1, "/" + id + "/");
        while (user_.step()) {
            if (auto job = user_.text(0); !ended.contains(job)) {
                return job;
            }
        }
        return std::nullopt;
    }

    bool remove(const std::string& id) override {
        sqlite::Transaction transaction(database_);
        remove_.bind(1, id);
        remove_.run();
        const bool removed = sqlite3_changes(database_.handle()) == 1;
        transaction.commit();
        return removed;
    }

  private:
    static std::string select(const char* tail) { return std::string(kColumns) + tail; }

    sqlite::Database database_;  // before the statements, which are destroyed first
    sqlite::Statement insert_{database_,
                              "INSERT INTO files (id, filename, purpose, bytes, created_at, owner_id) VALUES (?1, ?2, "
                              "?3, ?4, ?5, ?6)"};
    sqlite::Statement get_{database_, select("WHERE id = ?1").c_str()};
    sqlite::Statement ascending_{
        database_, select("WHERE number > ?1 AND (?2 = '' OR purpose = ?2) ORDER BY number LIMIT ?3").c_str()};
    sqlite::Statement descending_{
        database_,
        select("WHERE (?1 = 0 OR number < ?1) AND (?2 = '' OR purpose = ?2) ORDER BY number DESC LIMIT ?3").c_str()};
    sqlite::Statement user_{database_, ("SELECT jobs.id FROM jobs JOIN job_specs ON job_specs.job_id = jobs.id WHERE " +
                                        is_unfinished() + " AND instr(resolved_spec, ?1) > 0")
                                           .c_str()};
    sqlite::Statement remove_{database_, "DELETE FROM files WHERE id = ?1"};
};

}  // namespace

Result<std::unique_ptr<FileCatalogue>> open_file_catalogue(const std::filesystem::path& database) {
    try {
        return std::unique_ptr<FileCatalogue>(std::make_unique<SqliteFileCatalogue>(database));
    } catch (const ErrorException& error) {
        return error.error();
    }
}

}  // namespace distilld::openai

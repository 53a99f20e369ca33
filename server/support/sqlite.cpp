#include "server/support/sqlite.hpp"

#include <sys/stat.h>

#include <limits>

#include "base/utf8.hpp"

namespace distilld::sqlite {

ResetGuard::~ResetGuard() {
    statement_.reset();
}

Statement::Statement(Database& database, const std::string& sql) : database_(database) {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v3(database.handle(), sql.c_str(), -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr) !=
        SQLITE_OK) {
        database.fail("cannot prepare a statement");
    }
    statement_.reset(statement);
}

void Statement::bind(int index, std::string_view text) {
    if (text.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
        database_.fail("a text is too long");
    }
    // A null pointer would bind NULL, even for an empty text.
    const char* data = text.empty() ? "" : text.data();
    if (sqlite3_bind_text(statement_.get(), index, data, static_cast<int>(text.size()), SQLITE_TRANSIENT) !=
        SQLITE_OK) {
        database_.fail("cannot bind a text");
    }
}

void Statement::bind(int index, std::int64_t number) {
    if (sqlite3_bind_int64(statement_.get(), index, number) != SQLITE_OK) {
        database_.fail("cannot bind a number");
    }
}

void Statement::bind(int index, double number) {
    if (sqlite3_bind_double(statement_.get(), index, number) != SQLITE_OK) {
        database_.fail("cannot bind a number");
    }
}

void Statement::bind_null(int index) {
    if (sqlite3_bind_null(statement_.get(), index) != SQLITE_OK) {
        database_.fail("cannot bind null");
    }
}

bool Statement::step() {
    const int code = sqlite3_step(statement_.get());
    if (code == SQLITE_ROW) {
        return true;
    }
    if (code == SQLITE_DONE) {
        return false;
    }
    database_.fail("cannot run a statement");
}

int Statement::changes() const {
    return sqlite3_changes(database_.handle());
}

void Statement::reset() {
    // The result repeats the failure of the last step, which has been reported.
    sqlite3_reset(statement_.get());
    sqlite3_clear_bindings(statement_.get());
}

std::string Statement::text(int column) const {
    const auto* data = sqlite3_column_text(statement_.get(), column);
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column));
    return data == nullptr ? std::string() : to_valid_utf8({reinterpret_cast<const char*>(data), size});
}

std::int64_t Statement::integer(int column) const {
    return sqlite3_column_int64(statement_.get(), column);
}

double Statement::real(int column) const {
    return is_null(column) ? std::numeric_limits<double>::quiet_NaN() : sqlite3_column_double(statement_.get(), column);
}

bool Statement::is_null(int column) const {
    return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

Database::Database(const std::filesystem::path& file, const char* tables) : file_(file.string()) {
    sqlite3* handle = nullptr;
    const int code = sqlite3_open_v2(file_.c_str(), &handle,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
    handle_.reset(handle);
    if (handle == nullptr) {
        throw ErrorException(io_error(file_ + ": out of memory"));
    }
    if (code != SQLITE_OK) {
        fail("cannot open");
    }
    identity_ = identity_of(file_);
    sqlite3_extended_result_codes(handle, 1);
    sqlite3_busy_timeout(handle, 5000);
    execute(tables);
}

void Database::execute(const std::string& sql) {
    if (sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
        fail("cannot run a statement");
    }
}

std::int64_t Database::query_integer(const std::string& sql) {
    Statement statement(*this, sql);
    return statement.step() ? statement.integer(0) : 0;
}

void Database::fail(const std::string& what) const {
    throw ErrorException(io_error(file_ + ": " + what + ": " + sqlite3_errmsg(handle_.get())));
}

void Database::refuse(const std::string& what) const {
    throw ErrorException(io_error(file_ + ": " + what));
}

std::optional<Database::Identity> Database::identity_of(const std::string& file) {
    struct stat there{};
    return ::stat(file.c_str(), &there) == 0 ? std::optional(Identity{there.st_dev, there.st_ino}) : std::nullopt;
}

void Database::check_in_place() {
    const auto log = identity_of(file_ + "-wal");
    if (!log_identity_) {
        log_identity_ = log;
    }
    if (identity_of(file_) != identity_ || log != log_identity_) {
        refuse(
            "it or its -wal was deleted or replaced while in use, and writes would be lost: put the file back, or "
            "restart the service");
    }
}

Transaction::Transaction(Database& database) : database_(database) {
    database_.check_in_place();
    database_.execute("BEGIN IMMEDIATE");
}

Transaction::~Transaction() {
    // If SQLite has already rolled back (disk full), this fails, and nothing is left to do.
    if (open_) {
        sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
    }
}

void Transaction::commit() {
    database_.execute("COMMIT");
    open_ = false;
}

}  // namespace distilld::sqlite

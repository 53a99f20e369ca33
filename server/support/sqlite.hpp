#pragma once

#include <sqlite3.h>
#include <sys/types.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.hpp"

/// Owners for SQLite's C objects. Every failure is an ErrorException (io) that names the file.
namespace distilld::sqlite {

class Database;

class Statement;

/// Resets a reused statement at the end of the scope, so that it holds no read lock.
class ResetGuard {
  public:
    explicit ResetGuard(Statement& statement) : statement_(statement) {}
    ~ResetGuard();
    ResetGuard(const ResetGuard&) = delete;
    ResetGuard& operator=(const ResetGuard&) = delete;

  private:
    Statement& statement_;
};

/// A prepared statement. Parameters count from 1, columns from 0.
class Statement {
  public:
    Statement(Database& database, const std::string& sql);

    void bind(int index, std::string_view text);
    void bind(int index, std::int64_t number);
    void bind(int index, double number);  ///< NaN binds NULL
    void bind_null(int index);
    void bind(int index, std::integral auto number) { bind(index, static_cast<std::int64_t>(number)); }
    /// nullopt binds NULL.
    template <class T>
    void bind(int index, const std::optional<T>& value) {
        if (value) {
            bind(index, *value);
        } else {
            bind_null(index);
        }
    }

    /// Binds the first parameters.
    void bind_all(const auto&... values) {
        int index = 0;
        (bind(++index, values), ...);
    }
    /// For a query: binds the first parameters; step() then gives the rows, until the guard's end.
    [[nodiscard]] ResetGuard query(const auto&... values) {
        bind_all(values...);
        return ResetGuard(*this);
    }
    /// For a statement without rows: binds the first parameters, and returns how many rows it changed.
    int run(const auto&... values) {
        const ResetGuard guard = query(values...);
        step();
        return changes();
    }

    /// True: a row is available. False: done.
    bool step();
    void reset();

    [[nodiscard]] std::string text(int column) const;  ///< valid UTF-8, whatever the file holds
    [[nodiscard]] std::int64_t integer(int column) const;
    [[nodiscard]] double real(int column) const;  ///< NaN for NULL
    [[nodiscard]] bool is_null(int column) const;
    /// nullopt for NULL.
    template <class T>
    [[nodiscard]] std::optional<T> optional(int column) const {
        if (is_null(column)) {
            return std::nullopt;
        }
        if constexpr (std::is_floating_point_v<T>) {
            return static_cast<T>(real(column));
        } else {
            return static_cast<T>(integer(column));
        }
    }

  private:
    struct Finalize {
        void operator()(sqlite3_stmt* statement) const noexcept { sqlite3_finalize(statement); }
    };
    [[nodiscard]] int changes() const;

    Database& database_;
    std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

/// One connection, for one thread.
class Database {
  public:
    /// `tables`: statements that are run first (CREATE TABLE IF NOT EXISTS …).
    explicit Database(const std::filesystem::path& file, const char* tables = "");
    void execute(const std::string& sql);
    [[nodiscard]] std::int64_t query_integer(const std::string& sql);
    /// Throws "FILE: what: SQLite's message".
    [[noreturn]] void fail(const std::string& what) const;
    /// Throws "FILE: what".
    [[noreturn]] void refuse(const std::string& what) const;
    /// Throws if the file or its write-ahead log is no longer the opened one: it was deleted or replaced, and writes
    /// would be lost.
    void check_in_place();
    [[nodiscard]] sqlite3* handle() noexcept { return handle_.get(); }

  private:
    struct Close {
        void operator()(sqlite3* handle) const noexcept { sqlite3_close_v2(handle); }
    };
    struct Identity {
        dev_t device = 0;
        ino_t inode = 0;
        bool operator==(const Identity&) const = default;
    };
    static std::optional<Identity> identity_of(const std::string& file);

    std::string file_;
    std::unique_ptr<sqlite3, Close> handle_;
    std::optional<Identity> identity_;      ///< of the file that was opened
    std::optional<Identity> log_identity_;  ///< of its write-ahead log, since it first existed
};

/// BEGIN IMMEDIATE … COMMIT, or ROLLBACK without commit(). Calls check_in_place() first.
class Transaction {
  public:
    explicit Transaction(Database& database);
    ~Transaction();
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;
    void commit();

  private:
    Database& database_;
    bool open_ = true;
};

}  // namespace distilld::sqlite

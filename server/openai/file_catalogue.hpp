#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/support/sqlite.hpp"

namespace distilld::openai {

/// The record of an uploaded file.
struct UploadedFile {
    std::string id;        ///< "file-" and 24 hexadecimal digits
    std::string filename;  ///< as the client named it; not a path
    std::string purpose;
    std::uint64_t bytes = 0;
    std::int64_t created_at = 0;  ///< Unix time in seconds
    std::string owner_id{};       ///< of the uploading key; empty = only administrators
};

struct FileQuery {
    std::string after;  ///< id; empty = from the first
    std::uint32_t limit = 0;
    bool oldest_first = false;
    std::string purpose;  ///< empty = any
};

struct FilePage {
    std::vector<UploadedFile> files;
    bool has_more = false;
    bool unknown_after = false;  ///< `after` is not a file
};

/// The rows of the uploaded files in the job store's database, on a connection of its own. One thread at a time.
/// Database errors are thrown as ErrorException (io) that names the file.
class FileCatalogue {
  public:
    /// `database`: file of the job store, which must exist. Creates its own table there if it is missing.
    explicit FileCatalogue(const std::filesystem::path& database);

    void add(const UploadedFile& file);
    [[nodiscard]] std::optional<UploadedFile> get(const std::string& id);
    [[nodiscard]] FilePage list(const FileQuery& query);
    /// The sum over all files.
    [[nodiscard]] std::uint64_t bytes();
    /// An unfinished job, according to the database and except for `ended`, that uses the file.
    [[nodiscard]] std::optional<std::string> user_of(const std::string& id, const std::set<std::string>& ended);
    /// Does nothing if there is no such file.
    void remove(const std::string& id);

  private:
    sqlite::Database database_;  // before the statements, which are destroyed first
    sqlite::Statement insert_;
    sqlite::Statement get_;
    sqlite::Statement ascending_;
    sqlite::Statement descending_;
    sqlite::Statement user_;
    sqlite::Statement remove_;
};

}  // namespace distilld::openai

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld::openai {

/// What is known of a file that a client has sent.
struct UploadedFile {
    std::string id;        ///< "file-" and 24 hexadecimal digits
    std::string filename;  ///< as the client called it; no path
    std::string purpose;
    std::uint64_t bytes = 0;
    std::int64_t created_at = 0;  ///< Unix time in seconds
    std::string owner_id{};       ///< of the key that it was sent with; empty = administrators' alone
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
    bool unknown_after = false;  ///< `after` names no file
};

/// The rows of the uploaded files in the job store's database. One thread at a time; beside the store's own. What the
/// database refuses is thrown as ErrorException (io) that names it.
class FileCatalogue {
  public:
    virtual ~FileCatalogue() = default;
    virtual void add(const UploadedFile& file) = 0;
    [[nodiscard]] virtual std::optional<UploadedFile> get(const std::string& id) = 0;
    [[nodiscard]] virtual FilePage list(const FileQuery& query) = 0;
    /// Of all files.
    [[nodiscard]] virtual std::uint64_t bytes() = 0;
    /// A job that has not ended, as far as the database knows, and whose spec names the file; none of `ended`.
    [[nodiscard]] virtual std::optional<std::string> user_of(const std::string& id,
                                                             const std::set<std::string>& ended) = 0;
    /// False: there is none.
    virtual bool remove(const std::string& id) = 0;
};

/// `database`: file of the job store, which has been opened before. Creates its own table there if it is missing.
[[nodiscard]] Result<std::unique_ptr<FileCatalogue>> open_file_catalogue(const std::filesystem::path& database);

}  // namespace distilld::openai

#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/error.hpp"
#include "server/http/http_message.hpp"
#include "server/jobs/routes/artifact_folder.hpp"
#include "server/openai/file_catalogue.hpp"
#include "server/openai/file_upload.hpp"

namespace distilld::openai {

/// Opens a file. ErrorException (io) on failure.
using FileOpener = std::function<ArtifactFile()>;

/// Result of remove().
struct FileRemoval {
    enum class Kind { removed, not_found, in_use };
    Kind kind = Kind::not_found;
    std::string job_id;  ///< in_use: an unfinished job that reads the file
};

/// Files that clients have uploaded: each in its own folder FOLDER/ID, with a row in the job store's database. The
/// coroutines run on the caller's executor; rows and bytes are read and written on the store's own threads. Failures of
/// the database and of the disk are thrown as ErrorException.
class FileStore {
  public:
    /// `database`: see FileCatalogue. `folder` is created; remains of interrupted uploads in it are removed.
    /// `space`: maximum bytes of all files together.
    static Result<std::shared_ptr<FileStore>> open(const std::filesystem::path& database,
                                                   const std::filesystem::path& folder, std::uint64_t space);

    /// Use open().
    FileStore(const std::filesystem::path& database, std::filesystem::path folder, std::uint64_t space);

    [[nodiscard]] std::shared_ptr<FileUpload> begin_upload(const std::string& boundary) const;
    /// Publishes a finished upload.
    boost::asio::awaitable<void> add(std::shared_ptr<FileUpload> upload, UploadedFile file);
    boost::asio::awaitable<std::optional<UploadedFile>> get(std::string id);
    boost::asio::awaitable<FilePage> list(FileQuery query);
    /// Refused while an unfinished job reads it. `ended`: jobs that have ended, even if not yet in the database.
    boost::asio::awaitable<FileRemoval> remove(std::string id, std::set<std::string> ended);

    /// Maximum bytes of all files together.
    [[nodiscard]] std::uint64_t space() const noexcept { return space_->limit(); }
    [[nodiscard]] std::filesystem::path path_of(const std::string& id) const { return folder_ / id / kStoredName; }
    /// For work on the disk.
    [[nodiscard]] boost::asio::any_io_executor disk() { return disk_->get_executor(); }

    /// The opener opens the file with this id each time it is called; it blocks.
    [[nodiscard]] FileOpener opener(const std::string& id) const;

    /// The bytes of a file, read piece by piece as they are sent; they stay readable if the file is removed meanwhile.
    /// ErrorException (io) if it cannot be opened.
    boost::asio::awaitable<std::unique_ptr<http::BodyStream>> content(FileOpener open);

  private:
    Result<void> clean();

    const std::filesystem::path folder_;
    FileCatalogue catalogue_;  ///< used on thread_
    const std::shared_ptr<UploadSpace> space_;
    boost::asio::thread_pool thread_{1};  ///< for the catalogue
    std::shared_ptr<boost::asio::thread_pool> disk_ = std::make_shared<boost::asio::thread_pool>(2);
};

}  // namespace distilld::openai

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

#include "api/http_message.hpp"
#include "base/error.hpp"
#include "server/jobs/artifact_folder.hpp"
#include "server/openai/file_catalogue.hpp"
#include "server/openai/file_upload.hpp"
#include "server/openai/upload_space.hpp"

namespace distilld::openai {

/// Opens a file. ErrorException (io) when that cannot be.
using FileOpener = std::function<ArtifactFile()>;

/// What remove() came to.
struct FileRemoval {
    enum class Kind { removed, not_found, in_use };
    Kind kind = Kind::not_found;
    std::string job_id;  ///< in_use: a job that has not ended and reads the file
};

/// Files that clients have sent: each in a folder FOLDER/ID of its own, with a row in the job store's database. The
/// coroutines run on the caller's executor; rows and bytes are read and written on threads of its own. Failures of the
/// database and of the disk come out as ErrorException.
class FileStore {
  public:
    /// `database` as of open_file_catalogue(). `folder` is made; what an interrupted upload left in it is removed.
    /// `space`: bytes that all files may take together.
    static Result<std::shared_ptr<FileStore>> open(const std::filesystem::path& database,
                                                   const std::filesystem::path& folder, std::uint64_t space);

    FileStore(std::unique_ptr<FileCatalogue> catalogue, std::filesystem::path folder, std::uint64_t space);

    [[nodiscard]] std::shared_ptr<FileUpload> begin_upload(const std::string& boundary) const;
    /// Of an upload that has finished: the file is there for others when this returns.
    boost::asio::awaitable<void> add(std::shared_ptr<FileUpload> upload, UploadedFile file);
    boost::asio::awaitable<std::optional<UploadedFile>> get(std::string id);
    boost::asio::awaitable<FilePage> list(FileQuery query);
    /// Not while a job reads it that has not ended. `ended`: jobs that have, whatever the database says (it learns of
    /// an end a moment later than those who ask for the job).
    boost::asio::awaitable<FileRemoval> remove(std::string id, std::set<std::string> ended);

    /// Bytes that all files may take together.
    [[nodiscard]] std::uint64_t space() const noexcept { return space_->limit(); }
    [[nodiscard]] std::filesystem::path path_of(const std::string& id) const { return folder_ / id / kStoredName; }
    /// For work on the disk.
    [[nodiscard]] boost::asio::any_io_executor disk() { return disk_->get_executor(); }

    /// Opens the file of this id when it is called, which blocks.
    [[nodiscard]] FileOpener opener(const std::string& id) const;

    /// The bytes of a file, read piece by piece as they are sent; they stay readable when the file is removed
    /// meanwhile. ErrorException (io) when it cannot be opened.
    boost::asio::awaitable<std::unique_ptr<api::BodyStream>> content(FileOpener open);

  private:
    Result<void> clean();

    const std::filesystem::path folder_;
    std::unique_ptr<FileCatalogue> catalogue_;  ///< for its thread
    const std::shared_ptr<UploadSpace> space_;
    boost::asio::thread_pool thread_{1};  ///< of the catalogue
    std::shared_ptr<boost::asio::thread_pool> disk_ = std::make_shared<boost::asio::thread_pool>(2);
};

}  // namespace distilld::openai

#include "server/openai/file_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/files/open_file.hpp"
#include "pipeline/async/run_on.hpp"
#include "server/jobs/job_answers.hpp"
#include "server/support/log.hpp"

namespace distilld::openai {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kPieceBytes = 256U << 10;

/// ErrorException if it cannot be opened.
ArtifactFile open_stored(const std::filesystem::path& file) {
    Descriptor opened = open_file(file, O_RDONLY | O_NOFOLLOW).value();
    struct stat status{};
    if (::fstat(opened.get(), &status) != 0) {
        throw ErrorException(io_error(file.string() + ": " + std::strerror(errno)));
    }
    return {std::move(opened), file.string(), static_cast<std::uint64_t>(status.st_size), status.st_mtime};
}

class FileContent final : public http::BodyStream {
  public:
    FileContent(std::shared_ptr<asio::thread_pool> disk, std::shared_ptr<ArtifactFile> file)
        : disk_(std::move(disk)), file_(std::move(file)) {}

    asio::awaitable<std::optional<std::string>> next() override {
        auto reading = run_on(disk_->get_executor(), [file = file_] { return file->read(kPieceBytes); });
        std::string bytes = co_await std::move(reading);
        if (bytes.empty()) {
            co_return std::nullopt;
        }
        co_return bytes;
    }

  private:
    std::shared_ptr<asio::thread_pool> disk_;
    std::shared_ptr<ArtifactFile> file_;
};

}  // namespace

Result<std::shared_ptr<FileStore>> FileStore::open(const std::filesystem::path& database,
                                                   const std::filesystem::path& folder, std::uint64_t space) {
    try {
        auto store = std::make_shared<FileStore>(database, folder, space);
        if (const auto cleaned = store->clean(); !cleaned) {
            return cleaned.error();
        }
        return store;
    } catch (const ErrorException& error) {
        return error.error();
    }
}

FileStore::FileStore(const std::filesystem::path& database, std::filesystem::path folder, std::uint64_t space)
    : folder_(std::move(folder)),
      catalogue_(database),
      space_(std::make_shared<UploadSpace>(space, catalogue_.bytes())) {}

Result<void> FileStore::clean() {
    std::error_code ec;
    std::filesystem::create_directories(folder_, ec);
    if (ec) {
        return io_error(folder_.string() + ": " + ec.message());
    }
    for (auto entry = std::filesystem::directory_iterator(folder_, ec);
         !ec && entry != std::filesystem::directory_iterator(); entry.increment(ec)) {
        const auto id = entry->path().filename().string();
        if (!id.starts_with("file-") || catalogue_.get(id)) {
            continue;
        }
        log::info("files", entry->path().string() + " is not a complete file: removed");
        std::error_code ignored;
        std::filesystem::remove_all(entry->path(), ignored);
    }
    if (ec) {
        return io_error(folder_.string() + ": " + ec.message());
    }
    return {};
}

std::shared_ptr<FileUpload> FileStore::begin_upload(const std::string& boundary) const {
    const auto id = "file-" + make_job_id().substr(std::strlen("job-"));
    return std::make_shared<FileUpload>(folder_ / id, id, boundary, space_);
}

asio::awaitable<void> FileStore::add(std::shared_ptr<FileUpload> upload, UploadedFile file) {
    return run_on(thread_.get_executor(), [this, upload = std::move(upload), file = std::move(file)] {
        catalogue_.add(file);
        upload->keep();
    });
}

asio::awaitable<std::optional<UploadedFile>> FileStore::get(std::string id) {
    return run_on(thread_.get_executor(), [this, id = std::move(id)] { return catalogue_.get(id); });
}

asio::awaitable<FilePage> FileStore::list(FileQuery query) {
    return run_on(thread_.get_executor(), [this, query = std::move(query)] { return catalogue_.list(query); });
}

asio::awaitable<FileRemoval> FileStore::remove(std::string id, std::set<std::string> ended) {
    return run_on(thread_.get_executor(), [this, id = std::move(id), ended = std::move(ended)] {
        FileRemoval removal;
        const auto file = catalogue_.get(id);
        if (!file) {
            return removal;
        }
        if (auto user = catalogue_.user_of(id, ended)) {
            removal.kind = FileRemoval::Kind::in_use;
            removal.job_id = *std::move(user);
            return removal;
        }
        catalogue_.remove(id);
        removal.kind = FileRemoval::Kind::removed;
        std::error_code failed;
        std::filesystem::remove_all(folder_ / id, failed);
        if (failed) {
            log::warn("files", (folder_ / id).string() + " cannot be removed: " + failed.message());
        }
        space_->give_back(file->bytes);
        return removal;
    });
}

asio::awaitable<std::unique_ptr<http::BodyStream>> FileStore::content(FileOpener open) {
    auto opening =
        run_on(disk_->get_executor(), [open = std::move(open)] { return std::make_shared<ArtifactFile>(open()); });
    auto opened = co_await std::move(opening);
    co_return std::make_unique<FileContent>(disk_, std::move(opened));
}

FileOpener FileStore::opener(const std::string& id) const {
    return [file = path_of(id)] { return open_stored(file); };
}

}  // namespace distilld::openai

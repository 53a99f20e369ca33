#include "server/jobs/artifact_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "api/job_spec_json.hpp"
#include "base/files.hpp"
#include "base/json_text.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxOwnerBytes = 4U << 20;
constexpr std::size_t kMaxOwnerDepth = 4;
constexpr std::size_t kMaxFolders = 10'000;  // and as deep: links may lead in circles

Error cannot_read(const fs::path& path, const std::error_code& why) {
    return io_error("cannot read " + path.string() + ": " + why.message());
}

/// Whether what the root's folders lead to is of those that clients get. `real` is without links.
bool is_shown(const ArtifactFolder& folder, const fs::path& real) {
    if (!is_below(real, folder.root) || is_below(real, folder.checkpoints)) {
        return false;
    }
    const fs::path inside = real.lexically_relative(folder.root);
    return std::ranges::none_of(inside,
                                [](const fs::path& part) { return part != "." && part.native().starts_with('.'); });
}

/// The hash that the worker wrote beside the model (server/worker/export_owner.hpp); empty: it is not known.
std::string exported_sha256(const fs::path& root) {
    const auto text = read_text_file(root / "distilld.json", kMaxOwnerBytes);
    if (!text) {
        return {};
    }
    const auto document = parse_json_text(*text, kMaxOwnerDepth);
    const auto* object = document ? document->if_object() : nullptr;
    const auto* hash = object != nullptr ? object->if_contains("weights_sha256") : nullptr;
    return hash != nullptr && hash->is_string() ? std::string(hash->get_string()) : std::string();
}

class Listing {
  public:
    explicit Listing(const ArtifactFolder& folder) : folder_(folder) {}

    Result<void> add(const fs::path& path, const std::string& prefix) {
        if (++folders_ > kMaxFolders) {
            return io_error("there are too many folders in " + folder_.root.string());
        }
        std::vector<std::string> names;
        std::error_code failed;
        for (auto entry = fs::directory_iterator(path, failed); !failed && entry != fs::directory_iterator();
             entry.increment(failed)) {
            names.push_back(entry->path().filename().string());
        }
        if (failed) {
            return cannot_read(path, failed);
        }
        std::ranges::sort(names);
        for (const std::string& name : names) {
            if (Result<void> added = add_one(path / name, prefix + name); !added) {
                return added;
            }
        }
        return {};
    }

    std::vector<ArtifactEntry> entries;

  private:
    Result<void> add_one(const fs::path& path, const std::string& name) {
        std::error_code failed;
        const fs::path real = fs::canonical(path, failed);
        if (failed || path.filename().native().starts_with('.') || !is_shown(folder_, real)) {
            return {};  // a link to nowhere, or none of ours
        }
        const auto status = fs::status(real, failed);
        if (fs::is_directory(status)) {
            // A link to a folder above would never end.
            const bool link = fs::is_symlink(fs::symlink_status(path, failed));
            if (link && is_below(path.parent_path(), real)) {
                return {};
            }
            entries.push_back({name, true});
            return add(path, name + "/");
        }
        if (fs::is_regular_file(status)) {
            entries.push_back({name, false});
        }
        return {};
    }

    const ArtifactFolder& folder_;
    std::size_t folders_ = 0;
};

}  // namespace

Result<std::optional<ArtifactFolder>> artifact_folder_of(const api::Job& job) {
    std::error_code failed;
    ArtifactFolder folder;
    folder.root = fs::canonical(job.output, failed);
    if (failed == std::errc::no_such_file_or_directory || failed == std::errc::not_a_directory ||
        (!failed && !fs::is_directory(folder.root, failed))) {
        return std::optional<ArtifactFolder>();
    }
    if (failed) {
        return cannot_read(job.output, failed);
    }
    const std::string sha256 = exported_sha256(folder.root);
    if (!job.weights_sha256.empty() && sha256 != job.weights_sha256) {
        return std::optional<ArtifactFolder>();
    }
    const auto spec = api::parse_job_spec(job.resolved_spec_json);
    const bool elsewhere = spec && !spec->checkpoint.dir.empty();
    folder.checkpoints =
        fs::weakly_canonical(elsewhere ? fs::path(spec->checkpoint.dir) : folder.root / "checkpoints", failed);
    if (failed) {
        return cannot_read(job.output, failed);
    }
    if (is_below(folder.root, folder.checkpoints)) {
        folder.checkpoints = folder.root / "checkpoints";  // beside the model: they cannot be told apart by folder
    }
    return std::optional(std::move(folder));
}

Result<std::vector<ArtifactEntry>> list_artifacts(const ArtifactFolder& folder) {
    Listing listing(folder);
    if (const Result<void> done = listing.add(folder.root, ""); !done) {
        return done.error();
    }
    return std::move(listing.entries);
}

ArtifactFile::ArtifactFile(ArtifactFile&& other) noexcept
    : size(other.size),
      modified(other.modified),
      name_(std::move(other.name_)),
      done_(other.done_),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

ArtifactFile& ArtifactFile::operator=(ArtifactFile&& other) noexcept {
    size = other.size;
    modified = other.modified;
    std::swap(name_, other.name_);
    done_ = other.done_;
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

ArtifactFile::~ArtifactFile() {
    if (descriptor_ >= 0) {
        ::close(descriptor_);
    }
}

std::string ArtifactFile::read(std::size_t limit) {
    std::string bytes(static_cast<std::size_t>(std::min<std::uint64_t>(limit, size - done_)), '\0');
    std::size_t filled = 0;
    while (filled < bytes.size()) {
        const ssize_t got = ::read(descriptor_, bytes.data() + filled, bytes.size() - filled);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            throw ErrorException(cannot_read(name_, std::error_code(errno, std::system_category())));
        }
        if (got == 0) {
            throw ErrorException(io_error(name_ + " has become shorter while it was read"));
        }
        filled += static_cast<std::size_t>(got);
    }
    done_ += filled;
    return bytes;
}

Result<std::optional<ArtifactFile>> open_artifact(const ArtifactFolder& folder, const std::string& name) {
    std::optional<ArtifactFile> none;
    const fs::path relative(name);
    const bool plain = !name.empty() && name.find('\0') == std::string::npos && relative.is_relative() &&
                       std::ranges::none_of(relative, [](const fs::path& part) {
                           return part.empty() || part.native().starts_with('.');
                       });
    if (!plain) {
        return none;
    }
    const fs::path path = folder.root / relative;
    // Not blocking: what it is we see when it is open, and a pipe would wait for its other end.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (descriptor < 0) {
        const std::error_code why(errno, std::system_category());
        const bool absent = why == std::errc::no_such_file_or_directory || why == std::errc::not_a_directory ||
                            why == std::errc::filename_too_long || why == std::errc::too_many_symbolic_link_levels ||
                            why == std::errc::no_such_device_or_address;
        return absent ? Result<std::optional<ArtifactFile>>(std::move(none)) : cannot_read(path, why);
    }
    struct stat status{};
    const bool known = ::fstat(descriptor, &status) == 0;
    ArtifactFile file(descriptor, path.string(), known ? static_cast<std::uint64_t>(status.st_size) : 0,
                      status.st_mtime);
    // Where the file that is open really lies: nobody can put a link in between any more.
    std::error_code failed;
    const fs::path real = fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor), failed);
    if (!known || failed || !S_ISREG(status.st_mode) || !is_shown(folder, real)) {
        return none;
    }
    return std::optional(std::move(file));
}

}  // namespace distilld

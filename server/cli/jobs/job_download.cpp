#include "server/cli/jobs/job_download.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/files/descriptor.hpp"
#include "base/files/files.hpp"
#include "server/cli/jobs/unpack_tar.hpp"

namespace distilld::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kSilence{60};

/// The two ends of a socket: one thread receives, another unpacks. It holds little, so a slow disk slows the service's
/// stream.
class Pair {
  public:
    Pair() {
        std::array<int, 2> ends{};
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
            throw std::system_error(errno, std::system_category(), "socketpair");
        }
        ends_ = {Descriptor(ends[0]), Descriptor(ends[1])};
    }

    [[nodiscard]] int end(std::size_t which) const { return ends_[which].get(); }
    void close(std::size_t which) { ends_[which] = Descriptor(); }
    /// False: the reader is gone.
    [[nodiscard]] bool send(std::string_view bytes) const {
        while (!bytes.empty()) {
            const ssize_t sent = ::send(end(0), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent < 0 && errno == EINTR) {
                continue;
            }
            if (sent <= 0) {
                return false;
            }
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        }
        return true;
    }

  private:
    std::array<Descriptor, 2> ends_;
};

/// A temporary folder beside the final one. The destructor removes it unless it has become the final one.
class Draft {
  public:
    static Result<Draft> beside(const fs::path& folder) {
        const fs::path parent = folder.parent_path();
        std::string name = (parent / ("." + folder.filename().string() + ".XXXXXX")).string();
        if (::mkdtemp(name.data()) == nullptr) {
            return io_error("cannot make a folder in " + parent.string() + ": " +
                            std::error_code(errno, std::system_category()).message());
        }
        return Draft(std::move(name));
    }
    Draft(Draft&& other) noexcept : path_(std::exchange(other.path_, {})) {}
    Draft& operator=(Draft&&) = delete;
    Draft(const Draft&) = delete;
    Draft& operator=(const Draft&) = delete;
    ~Draft() {
        std::error_code ignored;
        if (!path_.empty()) {
            fs::remove_all(path_, ignored);
        }
    }

    [[nodiscard]] const fs::path& path() const { return path_; }
    Result<void> become(const fs::path& folder) {
        std::error_code ec;
        if (fs::exists(folder, ec)) {
            // Keeps an empty folder of the user as it is: it may be somebody's working folder.
            for (auto entry = fs::directory_iterator(path_, ec); !ec && entry != fs::directory_iterator();
                 entry.increment(ec)) {
                fs::rename(entry->path(), folder / entry->path().filename(), ec);
                if (ec) {
                    return io_error("cannot write to folder " + folder.string() + ": " + ec.message());
                }
            }
            return {};
        }
        fs::permissions(path_, fs::perms(0755), ec);
        fs::rename(path_, folder, ec);
        if (ec) {
            return io_error("cannot make folder " + folder.string() + ": " + ec.message());
        }
        path_.clear();
        return {};
    }

  private:
    explicit Draft(fs::path path) : path_(std::move(path)) {}
    fs::path path_;
};

Result<void> received(RestClient& client, const DownloadOrder& order, const RestClient::OnPiece& on_piece) {
    const auto answer = client.stream("/v1/jobs/" + path_segment(order.job_id) + "/artifacts", {}, on_piece, kSilence);
    if (!answer) {
        return answer.error();
    }
    if (answer->status != 200) {
        return io_error(describe_problem(*answer));
    }
    return {};
}

Result<Download> to_folder(RestClient& client, const DownloadOrder& order) {
    std::error_code ec;
    fs::path folder = fs::absolute(order.to.empty() ? order.job_id : order.to, ec).lexically_normal();
    if (!folder.has_filename()) {
        folder = folder.parent_path();  // "student/", "."
    }
    if (fs::exists(folder, ec) && !(fs::is_directory(folder, ec) && fs::is_empty(folder, ec))) {
        return invalid_input("--to " + folder.string() + ": it exists and is not an empty folder; name another one");
    }
    fs::create_directories(folder.parent_path(), ec);
    Result<Draft> draft = Draft::beside(folder);
    if (!draft) {
        return draft.error();
    }
    Pair pair;
    std::optional<Result<UnpackedTar>> unpacked;
    std::thread unpacking([&] {
        unpacked = unpack_tar(pair.end(1), draft->path());
        ::shutdown(pair.end(1), SHUT_RDWR);  // stops the download
    });
    const Result<void> whole = received(client, order, [&pair](std::string_view piece) { return pair.send(piece); });
    pair.close(0);
    unpacking.join();
    if (!whole) {
        return whole.error();
    }
    if (!*unpacked) {
        return unpacked->error();
    }
    if (const Result<void> made = draft->become(folder); !made) {
        return made.error();
    }
    return Download{folder.string(), (*unpacked)->files, (*unpacked)->bytes};
}

Result<Download> to_stdout(RestClient& client, const DownloadOrder& order) {
    Download done{"-"};
    bool written = true;
    const Result<void> whole = received(client, order, [&](std::string_view piece) {
        done.bytes += piece.size();
        written = std::fwrite(piece.data(), 1, piece.size(), stdout) == piece.size();
        return written;
    });
    if (!whole) {
        return whole.error();
    }
    if (!written || std::fflush(stdout) != 0) {
        return io_error("cannot write to stdout");
    }
    return done;
}

Result<Download> to_file(RestClient& client, const DownloadOrder& order) {
    Result<AtomicFile> file = AtomicFile::create(order.file);
    if (!file) {
        return file.error();
    }
    Download done{order.file};
    Result<void> written;
    const Result<void> whole = received(client, order, [&](std::string_view piece) {
        done.bytes += piece.size();
        written = file->write(piece);
        return written.has_value();
    });
    if (!written || !whole) {
        return written ? whole.error() : written.error();
    }
    if (const Result<void> committed = file->commit(); !committed) {
        return committed.error();
    }
    return done;
}

}  // namespace

Result<Download> download_artifacts(RestClient& client, const DownloadOrder& order) {
    if (order.file.empty()) {
        return to_folder(client, order);
    }
    return order.file == "-" ? to_stdout(client, order) : to_file(client, order);
}

}  // namespace distilld::cli

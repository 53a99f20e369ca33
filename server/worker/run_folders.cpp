#include "server/worker/run_folders.hpp"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "pipeline/graph/space_wait.hpp"
#include "server/worker/gives_up.hpp"
#include "server/worker/machine/disk_space.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::seconds kLockTimeout = kOrphanTimeout + std::chrono::seconds(30);
constexpr std::chrono::milliseconds kLockPoll{100};

/// Creates the folder, and creates and removes a file in it: a folder that cannot be written to must show before the
/// training.
Result<void> require_writable(const std::filesystem::path& folder) {
    if (Result<void> made = make_folders(folder); !made) {
        return made;
    }
    const Result<AtomicFile> probe = AtomicFile::create(folder / "probe");
    return probe ? Result<void>() : Result<void>(probe.error());
}

/// Also waits while the disk is full. A file system that is read-only when the run begins means a wrong folder; one
/// that becomes read-only later is a fault that is waited out.
asio::awaitable<Result<void>> make_writable(std::filesystem::path folder, GraphExecutors executors, RunControl& control,
                                            EmitEvent emit) {
    SpaceWait space(executors.io, std::move(emit));
    const GivesUp gives_up(control, space);
    std::function<Result<std::string>()> attempt = [folder]() -> Result<std::string> {
        const Result<void> writable = require_writable(folder);
        if (!writable && is_read_only(folder)) {
            return io_error(writable.error().message);
        }
        return writable ? Result<std::string>(folder.string()) : Result<std::string>(writable.error());
    };
    const Result<std::string> made = co_await space.perform(executors.disk, std::move(attempt));
    if (!made) {
        co_return control.cancelled() ? stopped_on_request() : made.error();
    }
    co_return Result<void>();
}

/// Two runs must not write checkpoints into one folder. Waits for a run that is just ending (its service was killed,
/// and it saves its last step).
asio::awaitable<Result<FolderLock>> lock(std::filesystem::path folder, asio::any_io_executor io, RunControl& control,
                                         EmitEvent emit) {
    const auto deadline = std::chrono::steady_clock::now() + kLockTimeout;
    asio::steady_timer pause(io);
    for (bool told = false;; told = true) {
        Result<std::optional<FolderLock>> taken = FolderLock::try_lock(folder);
        if (!taken) {
            co_return taken.error();
        }
        if (*taken) {
            co_return std::move(**taken);
        }
        if (control.cancelled()) {
            co_return stopped_on_request();
        }
        if (std::chrono::steady_clock::now() >= deadline) {
            co_return invalid_input("/output: another run uses " + folder.string());
        }
        if (!told) {
            emit(LogEvent{"info", "waiting for another run to finish with " + folder.string()});
        }
        pause.expires_after(kLockPoll);
        co_await pause.async_wait(asio::use_awaitable);
    }
}

bool known(const std::vector<std::filesystem::path>& taken, const std::filesystem::path& folder) {
    for (const std::filesystem::path& one : taken) {
        if (std::filesystem::equivalent(one, folder)) {
            return true;
        }
    }
    return false;
}

}  // namespace

Error stopped_on_request() {
    return Error{ErrorKind::cancelled, "stopped on request"};
}

asio::awaitable<Result<std::vector<FolderLock>>> take_folders(std::vector<std::filesystem::path> folders,
                                                              GraphExecutors executors, RunControl& control,
                                                              EmitEvent emit) {
    std::vector<FolderLock> locks;
    std::vector<std::filesystem::path> taken;
    if (control.cancelled()) {
        co_return stopped_on_request();
    }
    for (const std::filesystem::path& folder : folders) {
        if (Result<void> writable = co_await make_writable(folder, executors, control, emit); !writable) {
            co_return writable.error();
        }
        if (known(taken, folder)) {
            continue;
        }
        Result<FolderLock> locked = co_await lock(folder, executors.io, control, emit);
        if (!locked) {
            co_return locked.error();
        }
        locks.push_back(std::move(*locked));
        taken.push_back(folder);
    }
    co_return locks;
}

}  // namespace distilld

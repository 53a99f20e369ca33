#include "server/worker/run_folders.hpp"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <system_error>
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

/// Makes the folder ours; nullopt: another run has it. Also waits while the disk is full. A file system that is
/// read-only when the run begins means a wrong folder; one that becomes read-only later is a fault that is waited out.
asio::awaitable<Result<std::optional<FolderFence>>> try_take(std::filesystem::path folder, JobAttempt attempt,
                                                             EarlierAttempt earlier, GraphExecutors executors,
                                                             RunControl& control, EmitEvent emit) {
    SpaceWait space(executors.io, std::move(emit));
    const GivesUp gives_up(control, space);
    std::optional<FolderFence> taken;
    std::function<Result<std::string>()> take = [&folder, &attempt, &earlier, &taken]() -> Result<std::string> {
        Result<void> done = require_writable(folder);
        if (done) {
            Result<std::optional<FolderFence>> fence = FolderFence::try_take(folder, attempt, earlier);
            done = fence ? Result<void>() : fence.error();
            taken = fence ? std::move(*fence) : std::nullopt;
        }
        if (!done && is_read_only(folder)) {
            return io_error(done.error().message);
        }
        return done ? Result<std::string>(folder.string()) : done.error();
    };
    const Result<std::string> made = co_await space.perform(executors.disk, std::move(take));
    if (!made) {
        co_return control.cancelled() ? stopped_on_request() : made.error();
    }
    co_return std::move(taken);
}

/// Two runs must not write checkpoints into one folder. Waits for a run that is just ending (its service was killed,
/// and it saves its last step). An earlier attempt of the job that does not end in time is replaced.
asio::awaitable<Result<FolderFence>> take(std::filesystem::path folder, JobAttempt attempt, GraphExecutors executors,
                                          RunControl& control, EmitEvent emit) {
    const auto deadline = std::chrono::steady_clock::now() + kLockTimeout;
    asio::steady_timer pause(executors.io);
    for (bool told = false;; told = true) {
        const bool is_late = std::chrono::steady_clock::now() >= deadline;
        const EarlierAttempt earlier = is_late ? EarlierAttempt::replaced : EarlierAttempt::replaced_if_it_stands;
        Result<std::optional<FolderFence>> taken =
            co_await try_take(folder, attempt, earlier, executors, control, emit);
        if (!taken) {
            co_return taken.error();
        }
        if (*taken) {
            co_return std::move(**taken);
        }
        if (control.cancelled()) {
            co_return stopped_on_request();
        }
        if (is_late) {
            co_return invalid_input("/output: another run uses " + folder.string());
        }
        if (!told) {
            emit(LogEvent{"info", "waiting for another run to finish with " + folder.string()});
        }
        pause.expires_after(kLockPoll);
        co_await pause.async_wait(asio::use_awaitable);
    }
}

bool known(const std::vector<FolderFence>& taken, const std::filesystem::path& folder) {
    std::error_code missing;
    return std::ranges::any_of(
        taken, [&](const FolderFence& one) { return std::filesystem::equivalent(one.folder(), folder, missing); });
}

}  // namespace

Error stopped_on_request() {
    return Error{ErrorKind::cancelled, "stopped on request"};
}

asio::awaitable<Result<std::vector<FolderFence>>> take_folders(std::vector<std::filesystem::path> folders,
                                                               JobAttempt attempt, GraphExecutors executors,
                                                               RunControl& control, EmitEvent emit) {
    std::vector<FolderFence> fences;
    if (control.cancelled()) {
        co_return stopped_on_request();
    }
    for (const std::filesystem::path& folder : folders) {
        if (known(fences, folder)) {
            continue;
        }
        Result<FolderFence> taken = co_await take(folder, attempt, executors, control, emit);
        if (!taken) {
            co_return taken.error();
        }
        if (taken->has_replaced()) {
            emit(LogEvent{"warn",
                          "an earlier attempt of this job still runs or stands still; it can no longer write to " +
                              folder.string()});
        }
        fences.push_back(std::move(*taken));
    }
    co_return fences;
}

}  // namespace distilld

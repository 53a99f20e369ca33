#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "server/supervisor/launcher.hpp"
#include "server/supervisor/remote_attempts.hpp"
#include "server/supervisor/slurm/slurm_commands.hpp"
#include "server/supervisor/token_folder.hpp"
#include "server/supervisor/worker_output.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld::slurm {

struct SlurmOptions {
    using MakeWorker = std::function<std::unique_ptr<WorkerProcess>(WorkerOutput::LineSink)>;

    Commands commands;
    TokenFolder folder;             ///< that all nodes share
    std::string url;                ///< by which relays reach the service
    std::filesystem::path ca_file;  ///< authorities that relays trust; empty = those of their machine
    std::filesystem::path program;  ///< distilld, on the nodes
    /// Keeps what the worker says in the log of its job. `adopted`: an earlier run of the service has started it.
    std::function<std::unique_ptr<WorkerProcess>(const MakeWorker&, bool adopted)> with_log;
};

/// Each attempt is a Slurm job that runs a relay (`distilld attempt`). It goes on while the service is down. `attempts`
/// must outlive the launcher.
[[nodiscard]] std::unique_ptr<Launcher> make_slurm_launcher(SlurmOptions options, RemoteAttempts& attempts);

}  // namespace distilld::slurm

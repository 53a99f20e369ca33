#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "server/supervisor/command.hpp"
#include "server/supervisor/launcher.hpp"
#include "server/supervisor/slurm/slurm_output.hpp"

namespace distilld::slurm {

struct CommandsOptions {
    std::string path;                                              ///< folders with Slurm's commands, as in PATH
    std::vector<std::string> environment;                          ///< of the commands and of the jobs, NAME=value
    std::chrono::milliseconds deadline{std::chrono::seconds(30)};  ///< of each command
    std::function<boost::asio::awaitable<Result<CommandAnswer>>(Command)> run = run_command;
};

/// From our own environment: PATH, SLURM_CONF, and what a worker gets (server/supervisor/worker_environment.hpp), so no
/// key of the operator.
[[nodiscard]] CommandsOptions usual_commands();

/// Slurm, by its commands. The coroutines are those of run_command(): one executor, and they can be cancelled. Errors
/// have the command's own words.
class Commands {
  public:
    /// invalid_input if a command is missing.
    [[nodiscard]] static Result<Commands> find(CommandsOptions options);

    /// Submits the script and returns the id of its job.
    [[nodiscard]] boost::asio::awaitable<Result<std::uint64_t>> submit(std::vector<std::string> options,
                                                                       std::string script) const;
    /// Ends the job if it has not ended.
    [[nodiscard]] boost::asio::awaitable<Result<void>> cancel(std::uint64_t id) const;
    /// Ends our jobs of this name.
    [[nodiscard]] boost::asio::awaitable<Result<void>> cancel_named(std::string name) const;
    /// The jobs of our user, and those that have ended in the last minutes (MinJobAge of slurm.conf).
    [[nodiscard]] boost::asio::awaitable<Result<std::vector<QueueEntry>>> queue() const;
    /// One job; nullopt: Slurm does not know it.
    [[nodiscard]] boost::asio::awaitable<Result<std::optional<JobRecord>>> record(std::uint64_t id) const;
    /// The machines, without jobs.
    [[nodiscard]] boost::asio::awaitable<Result<std::vector<Node>>> nodes() const;

  private:
    Commands() = default;
    [[nodiscard]] boost::asio::awaitable<Result<CommandAnswer>> run(std::filesystem::path program,
                                                                    std::vector<std::string> arguments,
                                                                    std::string input = {}) const;

    CommandsOptions options_;
    std::filesystem::path sbatch_, scancel_, squeue_, sinfo_, scontrol_;
};

}  // namespace distilld::slurm

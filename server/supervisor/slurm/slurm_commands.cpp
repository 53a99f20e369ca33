#include "server/supervisor/slurm/slurm_commands.hpp"

#include <utility>

#include "base/environment.hpp"
#include "server/supervisor/worker_environment.hpp"

namespace distilld::slurm {
namespace {

namespace asio = boost::asio;

Error failure_of(const std::filesystem::path& program, const CommandAnswer& answer) {
    const std::string name = program.filename().string();
    const std::string said = answer.errors.starts_with(name) ? answer.errors : name + ": " + answer.errors;
    return io_error(answer.errors.empty() ? name + " ended with code " + std::to_string(answer.exit_code) : said);
}

/// What scontrol and scancel say of a job that Slurm does not know.
bool is_unknown(const CommandAnswer& answer) {
    return answer.exit_code != 0 && answer.errors.find("Invalid job id specified") != std::string::npos;
}

}  // namespace

CommandsOptions usual_commands() {
    std::vector<std::string> settings = worker_environment();
    if (const auto config = environment_variable("SLURM_CONF"); config && !config->empty()) {
        settings.push_back("SLURM_CONF=" + *config);
    }
    return {.path = environment_variable("PATH").value_or(""),
            .environment = child_environment(std::move(settings), nullptr)};
}

Result<Commands> Commands::find(CommandsOptions options) {
    Commands found;
    found.options_ = std::move(options);
    const std::pair<const char*, std::filesystem::path*> programs[] = {{"sbatch", &found.sbatch_},
                                                                       {"scancel", &found.scancel_},
                                                                       {"squeue", &found.squeue_},
                                                                       {"sinfo", &found.sinfo_},
                                                                       {"scontrol", &found.scontrol_}};
    for (const auto& [name, program] : programs) {
        auto file = find_program(name, found.options_.path);
        if (!file) {
            return invalid_input(std::string(name) +
                                 " is not in a folder of PATH: install Slurm's commands (Debian: slurm-client)");
        }
        *program = *std::move(file);
    }
    return found;
}

asio::awaitable<Result<CommandAnswer>> Commands::run(std::filesystem::path program, std::vector<std::string> arguments,
                                                     std::string input) const {
    Command command;
    command.program = std::move(program);
    command.arguments = std::move(arguments);
    command.environment = options_.environment;
    command.input = std::move(input);
    command.deadline = options_.deadline;
    co_return co_await options_.run(std::move(command));
}

asio::awaitable<Result<std::uint64_t>> Commands::submit(std::vector<std::string> options, std::string script) const {
    const auto answer = co_await run(sbatch_, std::move(options), std::move(script));
    if (!answer) {
        co_return answer.error();
    }
    co_return answer->exit_code == 0 ? read_job_id(answer->text) : failure_of(sbatch_, *answer);
}

asio::awaitable<Result<void>> Commands::cancel(std::uint64_t id) const {
    std::vector<std::string> arguments{std::to_string(id)};
    const auto answer = co_await run(scancel_, std::move(arguments));
    if (!answer) {
        co_return answer.error();
    }
    co_return answer->exit_code == 0 || is_unknown(*answer) ? Result<void>() : failure_of(scancel_, *answer);
}

asio::awaitable<Result<void>> Commands::cancel_named(std::string name) const {
    std::vector<std::string> arguments{"--me", "--name=" + name};
    const auto answer = co_await run(scancel_, std::move(arguments));
    if (!answer) {
        co_return answer.error();
    }
    co_return answer->exit_code == 0 ? Result<void>() : failure_of(scancel_, *answer);
}

asio::awaitable<Result<std::vector<QueueEntry>>> Commands::queue() const {
    std::vector<std::string> arguments{"--noheader", "--me", "--states=all", std::string("--format=") + kQueueFormat};
    const auto answer = co_await run(squeue_, std::move(arguments));
    if (!answer) {
        co_return answer.error();
    }
    if (answer->exit_code != 0) {
        co_return failure_of(squeue_, *answer);
    }
    co_return read_queue(answer->text);
}

asio::awaitable<Result<std::optional<JobRecord>>> Commands::record(std::uint64_t id) const {
    std::vector<std::string> arguments{"--oneliner", "show", "job", std::to_string(id)};
    const auto answer = co_await run(scontrol_, std::move(arguments));
    if (!answer) {
        co_return answer.error();
    }
    if (is_unknown(*answer)) {
        co_return std::optional<JobRecord>();
    }
    auto record = read_record(answer->text);
    if (answer->exit_code != 0 || !record) {
        co_return failure_of(scontrol_, *answer);
    }
    co_return record;
}

asio::awaitable<Result<std::vector<Node>>> Commands::nodes() const {
    std::vector<std::string> arguments{"--noheader", "--Node", std::string("--format=") + kNodeFormat};
    const auto answer = co_await run(sinfo_, std::move(arguments));
    if (!answer) {
        co_return answer.error();
    }
    if (answer->exit_code != 0) {
        co_return failure_of(sinfo_, *answer);
    }
    co_return read_nodes(answer->text);
}

}  // namespace distilld::slurm

#include "server/worker/eval/eval_program.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/algorithm/string/replace.hpp>
#include <chrono>
#include <cmath>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/ascii.hpp"
#include "base/environment.hpp"
#include "base/utf8.hpp"
#include "pipeline/graph/steady_time.hpp"
#include "server/supervisor/command.hpp"
#include "server/supervisor/worker_environment.hpp"
#include "server/worker/eval/printed_figures.hpp"

namespace distilld {

namespace asio = boost::asio;
namespace fs = std::filesystem;

namespace {

/// Runs its arguments, and ends with their exit code. The kernel sends it SIGTERM when the worker dies, however it
/// dies; then it kills all that the program has started, too.
constexpr const char* kGuard = R"(trap 'kill -KILL 0' TERM; "$@" & wait $!)";
constexpr int kNice = 10;  // of two programs that share cores, the training goes first
constexpr std::size_t kMaxPrinted = std::size_t{1} << 20U;
constexpr std::size_t kMaxProblem = 1000;  // bytes; the program's last words are the end
/// With these, libraries of the program would take it for one rank of several.
constexpr std::array<std::string_view, 5> kRolesOfRanks{
    "RANK=", "LOCAL_RANK=", "WORLD_SIZE=", "MASTER_ADDR=", "MASTER_PORT="};

std::vector<std::string> environment_of_program(const std::string& step, const std::string& folder) {
    std::vector<std::string> environment =
        child_environment({"DISTILLD_CHECKPOINT=" + folder, "DISTILLD_STEP=" + step}, nullptr);
    std::erase_if(environment, [](const std::string& entry) {
        return std::ranges::any_of(kRolesOfRanks, [&](std::string_view name) { return entry.starts_with(name); });
    });
    return environment;
}

Command command_of(const EvalSpec& eval, const fs::path& program, std::uint64_t step, const std::string& folder) {
    const std::string number = std::to_string(step);
    Command command;
    command.program = "/bin/sh";
    command.name = program.string();
    command.arguments = {"-c", kGuard, "sh", program.string()};
    for (std::size_t i = 1; i < eval.command.size(); ++i) {
        std::string word = eval.command[i];
        boost::replace_all(word, "{checkpoint}", folder);
        boost::replace_all(word, "{step}", number);
        command.arguments.push_back(std::move(word));
    }
    command.environment = environment_of_program(number, folder);
    command.deadline = std::chrono::milliseconds(std::llround(std::max(eval.command_timeout_secs * 1000, 1.0)));
    command.max_answer = kMaxPrinted;
    command.nice = kNice;
    return command;
}

/// The last line on stderr, or on stdout if that is empty.
std::string last_words(const CommandAnswer& answer) {
    std::string_view words = answer.errors;
    if (words.empty()) {
        words = trimmed(answer.text, " \t\r\n");
        words.remove_prefix(words.find_last_of('\n') + 1);  // npos + 1 is 0
    }
    return words.empty() ? "" : "; it said: " + to_valid_utf8(words);
}

Result<std::map<std::string, double>> figures_of(const Result<CommandAnswer>& answer) {
    if (!answer) {
        return answer.error();
    }
    if (answer->exit_code != 0) {
        return io_error("it exited with code " + std::to_string(answer->exit_code) + last_words(*answer));
    }
    Result<std::map<std::string, double>> figures = read_figures(answer->text);
    return figures ? std::move(figures) : invalid_input(figures.error().message + last_words(*answer));
}

}  // namespace

Result<fs::path> find_eval_program(const EvalSpec& eval) {
    if (eval.command.empty()) {
        return fs::path();
    }
    const std::string& name = eval.command.front();
    if (name.find('/') == std::string::npos) {
        if (auto found = find_program(name, environment_variable("PATH").value_or(""))) {
            return *std::move(found);
        }
        return invalid_input("/eval/command/0: " + name + " is in no folder of PATH: install it, or give its path");
    }
    std::error_code failed;
    if (fs::is_regular_file(name, failed) && ::access(name.c_str(), X_OK) == 0) {
        return fs::path(name);
    }
    return invalid_input("/eval/command/0: " + name + " is not a program that may be executed" +
                         (name.starts_with('/') ? "" : ", seen from " + fs::current_path(failed).string()));
}

asio::awaitable<FiguresEvent> judge_student(EvalSpec eval, std::uint64_t step, fs::path folder) {
    FiguresEvent event{.step = step};
    const Instant began = steady_now();
    Result<CommandAnswer> answer = CommandAnswer();
    if (Result<fs::path> program = find_eval_program(eval)) {
        auto running = run_command(command_of(eval, *program, step, folder.string()));
        answer = co_await std::move(running);
    } else {
        answer = program.error();
    }
    event.seconds = to_seconds(steady_now() - began);
    Result<std::map<std::string, double>> figures = figures_of(answer);
    if (figures) {
        event.figures = *std::move(figures);
    } else {
        event.problem = cut_utf8(figures.error().message, kMaxProblem);
    }
    co_return event;
}

}  // namespace distilld

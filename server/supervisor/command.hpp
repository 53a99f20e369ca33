#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// A program that is run to its end for its answer, such as squeue.
struct Command {
    std::filesystem::path program;
    std::string name{};  ///< of the program in errors; empty: its path
    std::vector<std::string> arguments{};
    std::vector<std::string> environment{};  ///< all of it, NAME=value
    std::string input{};                     ///< its stdin
    std::chrono::milliseconds deadline{std::chrono::seconds(30)};
    std::size_t max_answer = std::size_t{16} << 20U;  ///< bytes
    int nice = 0;                                     ///< added to ours
};

struct CommandAnswer {
    int exit_code = 0;   ///< as a shell reports it: 128 + signal if killed
    std::string text;    ///< its stdout
    std::string errors;  ///< the last line of its stderr, as UTF-8
};

/// Runs the command without a shell. Errors name the program: it cannot be started, it takes longer than its deadline,
/// or its answer is too long; it is killed then with its process group, as when the caller is cancelled. The kernel
/// kills the program, but nothing that it has started, when the calling thread ends. The calling coroutine's executor
/// must be a strand or have one thread.
[[nodiscard]] boost::asio::awaitable<Result<CommandAnswer>> run_command(Command command);

/// The program that a shell would find by `path`, a list of folders as in PATH.
[[nodiscard]] std::optional<std::filesystem::path> find_program(std::string_view name, std::string_view path);

}  // namespace distilld

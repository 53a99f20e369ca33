#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace distilld::cli {

/// What is wrong with the first word that stands where a command does and is none; nothing: there is no such word.
std::optional<std::string> unknown_command(const CLI::App& app, const std::vector<std::string>& arguments);

/// One line for an error of CLI11, in the words of the command that was called.
std::string describe_wrong_usage(const CLI::App& app, const CLI::ParseError& error,
                                 const std::vector<std::string>& arguments);

}  // namespace distilld::cli

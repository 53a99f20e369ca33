#pragma once

#include <deque>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "server/settings/settings_load.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace distilld::cli {

/// What was given on the command line of `serve`. It holds what CLI11 writes to: it may not move while options are
/// there.
struct ServeFlags {
    struct Given {
        std::string name;  ///< dotted, of a setting
        const CLI::Option* option = nullptr;
        std::vector<std::string> words;
        bool boolean = false;
    };
    std::string config;
    bool print_config = false;
    std::deque<Given> settings;
};

/// `--config`, `--print-config` and a flag for each setting that has one.
void add_serve_options(CLI::App& serve, ServeFlags& flags);

/// The settings by file, environment of this process and flags, once the command line is parsed.
[[nodiscard]] LoadedSettings serve_settings(const ServeFlags& flags);

}  // namespace distilld::cli

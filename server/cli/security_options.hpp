#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace distilld::cli {

/// Who may ask `distilld serve`, and for what.
struct SecurityOptions {
    bool insecure = false;                       ///< may listen wider than loopback without a key
    bool metrics_open = false;                   ///< /metrics needs no key
    std::vector<std::filesystem::path> roots{};  ///< below which specs may name paths
    std::vector<std::string> teacher_hosts{};    ///< patterns of HostRule; empty = all but what it refuses by itself
};

void add_security_options(CLI::App& serve, SecurityOptions& options);

}  // namespace distilld::cli

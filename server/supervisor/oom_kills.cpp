#include "server/supervisor/oom_kills.hpp"

#include <charconv>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace distilld {
namespace {

namespace fs = std::filesystem;

/// The number after "oom_kill " at the beginning of a line.
std::optional<std::uint64_t> read_count(const fs::path& file) {
    static constexpr std::string_view kName = "oom_kill ";
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with(kName)) {
            continue;
        }
        std::uint64_t count = 0;
        const auto read = std::from_chars(line.data() + kName.size(), line.data() + line.size(), count);
        return read.ec == std::errc{} ? std::optional(count) : std::nullopt;
    }
    return std::nullopt;
}

/// A line of /proc/self/cgroup is "number:controllers:path"; version 2 names no controllers.
struct GroupLine {
    std::string controllers;
    std::string path;
};

std::vector<GroupLine> group_lines(const fs::path& root) {
    std::vector<GroupLine> found;
    std::ifstream lines(root / "proc/self/cgroup");
    for (std::string line; std::getline(lines, line);) {
        const auto first = line.find(':');
        const auto second = line.find(':', first + 1);
        if (first != std::string::npos && second != std::string::npos) {
            found.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
        }
    }
    return found;
}

bool is_memory(const std::string& controllers) {
    std::istringstream names(controllers);
    for (std::string name; std::getline(names, name, ',');) {
        if (name == "memory") {
            return true;
        }
    }
    return false;
}

/// Candidates, the most specific first. A container sees its own group at the top, under the host's path or not.
std::vector<fs::path> counting_files(const fs::path& root) {
    std::vector<fs::path> files;
    const fs::path groups = root / "sys/fs/cgroup";
    for (const auto& line : group_lines(root)) {
        const fs::path path = fs::path(line.path).relative_path();
        if (line.controllers.empty()) {
            files.push_back(groups / path / "memory.events");
            files.push_back(groups / "memory.events");
        } else if (is_memory(line.controllers)) {
            files.push_back(groups / "memory" / path / "memory.oom_control");
            files.push_back(groups / "memory/memory.oom_control");
        }
    }
    files.push_back(root / "proc/vmstat");
    return files;
}

}  // namespace

OomKills kernel_oom_kills(const fs::path& root) {
    // Choose the file once: counts from different files cannot be compared.
    for (const auto& file : counting_files(root)) {
        if (read_count(file)) {
            return [file] { return read_count(file); };
        }
    }
    return [] { return std::optional<std::uint64_t>(); };
}

}  // namespace distilld

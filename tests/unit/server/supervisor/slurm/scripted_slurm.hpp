#pragma once

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "server/supervisor/slurm/slurm_commands.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld::test {

/// Slurm's commands in a folder: each call runs the next line of shell of its plan, and the last one again and again.
class ScriptedSlurm {
  public:
    ScriptedSlurm() {
        for (const char* name : {"sbatch", "scancel", "squeue", "sinfo", "scontrol"}) {
            const auto file = folder_.write(name,
                                            "#!/bin/sh\n"
                                            "name=${0##*/}\n"
                                            "cd \"${0%/*}\" || exit 9\n"
                                            "echo \"$name $*\" >>calls\n"
                                            "number=$(grep -c \"^$name \" calls)\n"
                                            "while [ ! -e \"$name.$number\" ]; do\n"
                                            "    [ \"$number\" -gt 1 ] || exit 0\n"
                                            "    number=$((number - 1))\n"
                                            "done\n"
                                            ". \"./$name.$number\"\n");
            ::chmod(file.c_str(), 0700);
        }
    }

    void plan(const std::string& name, const std::vector<std::string>& scripts) {
        for (std::size_t i = 0; i < scripts.size(); ++i) {
            folder_.write(name + "." + std::to_string(i + 1), scripts[i] + "\n");
        }
    }

    [[nodiscard]] slurm::CommandsOptions options() const {
        return {.path = folder_.path().string(), .environment = {"PATH=/usr/bin:/bin"}};
    }
    [[nodiscard]] slurm::Commands commands() const { return slurm::Commands::find(options()).value(); }

    /// What was called, in order, with the arguments.
    [[nodiscard]] std::vector<std::string> calls() const {
        std::vector<std::string> lines;
        std::istringstream text(read_bytes(folder_ / "calls"));
        for (std::string line; std::getline(text, line);) {
            lines.push_back(line);
        }
        return lines;
    }
    [[nodiscard]] std::ptrdiff_t calls_of(const std::string& name) const {
        const auto lines = calls();
        return std::ranges::count_if(lines, [&name](const auto& line) { return line.starts_with(name + " "); });
    }
    [[nodiscard]] std::string file(const std::string& name) const { return read_bytes(folder_ / name); }
    [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }

  private:
    TemporaryFolder folder_;
};

/// What squeue and scontrol 22.05.8 print on stderr.
inline constexpr const char* kControllerDown =
    "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1";
inline constexpr const char* kUnknownJob = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1";

}  // namespace distilld::test

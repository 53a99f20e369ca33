#include "server/supervisor/slurm/batch_script.hpp"

#include <algorithm>
#include <chrono>

#include "base/shell_word.hpp"

namespace distilld::slurm {
namespace {

/// Before the time limit or a preemption, for a checkpoint.
constexpr const char* kNotice = "TERM@60";

PlacementSpec placement_of(const JobSpec& spec) {
    return spec.placement.value_or(PlacementSpec());
}

/// Per node.
std::uint64_t cores_of(const JobSpec& spec) {
    const PlacementSpec placement = placement_of(spec);
    const std::uint64_t per_rank = placement.cores != 0 ? placement.cores : std::max(1U, spec.training.threads);
    return per_rank * (placement.ranks() > 1 ? placement.ranks_per_node : spec.training.ranks);
}

std::string option(const char* name, std::uint64_t number) {
    return std::string(name) + "=" + std::to_string(number);
}

}  // namespace

std::vector<std::string> batch_options(const JobSpec& spec, const std::string& name, const std::string& log) {
    constexpr std::uint64_t kMiB = 1ULL << 20;
    const PlacementSpec placement = placement_of(spec);
    std::vector<std::string> options;
    for (const auto& [key, value] : placement.options) {
        options.push_back(value.empty() ? "--" + key : "--" + key + "=" + value);
    }
    options.insert(options.end(), {"--parsable", "--no-requeue", "--export=ALL", "--job-name=" + name,
                                   "--output=" + log, option("--nodes", placement.nodes), "--ntasks-per-node=1",
                                   option("--cpus-per-task", cores_of(spec)),
                                   std::string("--signal=B:") + kNotice});  // to the script, whose ranks stop together
    if (placement.memory != 0) {
        options.push_back(option("--mem", (placement.memory + kMiB - 1) / kMiB) + "M");
    }
    if (placement.gpus != 0) {
        options.push_back(option("--gpus-per-node", placement.gpus));
    }
    if (!placement.partition.empty()) {
        options.push_back("--partition=" + placement.partition);
    }
    if (placement.time_limit.count() != 0) {
        const auto minutes = std::chrono::ceil<std::chrono::minutes>(placement.time_limit).count();
        options.push_back(option("--time", static_cast<std::uint64_t>(minutes)));
    }
    return options;
}

std::string batch_script(const std::vector<std::string>& command) {
    std::string script = "#!/bin/sh\nexec";
    for (const std::string& word : command) {
        script += " " + shell_word(word);
    }
    return script + "\n";
}

}  // namespace distilld::slurm

#include "server/jobs/checks/placement_check.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace distilld {
namespace {

void refuse(api::SpecViolations& found, bool given, const char* pointer, const char* why) {
    if (given) {
        found.violations.push_back({pointer, "conflict", std::string(why)});
    }
}

void check_local(const PlacementSpec& placement, api::SpecViolations& found) {
    constexpr const char* kNoCluster = "is for a cluster, but this service runs jobs on its own machine: leave it out";
    refuse(found, placement.nodes > 1, "/placement/nodes", kNoCluster);
    refuse(found, placement.ranks_per_node > 1, "/placement/ranks_per_node",
           "is for a cluster, but this service runs jobs on its own machine: give /training/ranks instead");
    refuse(found, !placement.partition.empty(), "/placement/partition", kNoCluster);
    refuse(found, !placement.options.empty(), "/placement/options", kNoCluster);
}

}  // namespace

api::SpecViolations check_placement(const JobSpec& spec, const LauncherSettings& launcher) {
    api::SpecViolations found;
    if (!spec.placement) {
        return found;
    }
    if (launcher.kind == LauncherKind::local) {
        check_local(*spec.placement, found);
        return found;
    }
    for (const auto& [name, value] : spec.placement->options) {
        if (std::ranges::find(launcher.allowed_options, name) == launcher.allowed_options.end()) {
            found.violations.push_back({"/placement/options/" + name, "conflict",
                                        "is not an option that this service allows (launcher.allowed_options)"});
        }
    }
    return found;
}

}  // namespace distilld

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "server/settings/service_settings.hpp"
#include "server/supervisor/slurm/slurm_commands.hpp"
#include "server/supervisor/token_folder.hpp"

namespace distilld::cli {

/// What the service needs to have workers on a cluster.
struct ClusterAccess {
    slurm::Commands commands;
    TokenFolder folder;
    std::string url;  ///< by which workers reach the service
};

/// invalid_input if launcher.folder is below one of the folders `open` that specs may name, but not in the data folder,
/// where it is closed to them: a job could read the tokens of others.
[[nodiscard]] Result<void> check_launcher_folder(const LauncherSettings& settings, const std::vector<std::string>& open,
                                                 const std::filesystem::path& data_dir);

/// Finds Slurm's commands, waits for an answer of sinfo, and opens the launcher's folder. `listen`: the address of the
/// service, which has HTTPS if `secure`. invalid_input names the setting that is wrong.
[[nodiscard]] Result<ClusterAccess> open_cluster(const LauncherSettings& settings, const std::string& listen,
                                                 bool secure, const std::filesystem::path& data_dir);

}  // namespace distilld::cli

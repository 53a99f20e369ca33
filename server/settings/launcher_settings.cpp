#include <algorithm>
#include <string_view>

#include "api/section_fields.hpp"
#include "server/settings/settings_table.hpp"

namespace distilld {
namespace {

/// The names of options of sbatch that the service sets itself, or that change what runs, as whom or how it is
/// followed.
constexpr const char* kOwnOptions[] = {
    "array",      "batch",     "chdir",       "clusters",        "cpus-per-task", "dependency",
    "error",      "export",    "export-file", "get-user-env",    "gid",           "gpus-per-node",
    "help",       "hold",      "ignore-pbs",  "input",           "job-name",      "mem",
    "no-requeue", "nodes",     "ntasks",      "ntasks-per-node", "open-mode",     "output",
    "parsable",   "partition", "quiet",       "requeue",         "signal",        "test-only",
    "time",       "uid",       "usage",       "version",         "wait",          "wrap",
};

std::string wrong_option(const std::string& name) {
    if (!api::is_cluster_option(name)) {
        return "must be the name of an option of sbatch without dashes before it, such as account or qos";
    }
    // sbatch also takes the beginning of a name.
    const bool own = std::ranges::any_of(kOwnOptions, [&name](std::string_view one) { return one.starts_with(name); });
    return own ? "must not be an option that the service sets itself, or that changes what runs" : "";
}

constexpr api::TextForm kOptionForm{.check = wrong_option};

}  // namespace

SettingsSection launcher_section() {
    return {
        .name = "launcher",
        .help = "where the workers of jobs run",
        .settings = {
            {.name = "kind",
             .kind = api::make_choice(&LauncherSettings::kind, kLauncherKindNames),
             .help = "where workers run; local: on this machine, slurm: where Slurm places them",
             .flag = "--launcher"},
            {.name = "url",
             .kind = api::make_url(&LauncherSettings::url),
             .help = "URL by which workers on other machines reach the service; none: by this machine's name and the "
                     "port of server.listen",
             .flag = "--launcher-url"},
            {.name = "ca_file",
             .kind = api::make_path(&LauncherSettings::ca_file, api::PathUse::reads, "file", true),
             .help = "PEM file with the authorities that such workers trust; it must be readable on all nodes",
             .flag = "--launcher-ca-file"},
            {.name = "folder",
             .kind = api::make_path(&LauncherSettings::folder, api::PathUse::writes, "folder", true),
             .help = "folder that all nodes share, for the tokens of workers and the output of their scripts; none: "
                     "launcher in the data folder",
             .flag = "--launcher-folder"},
            {.name = "allowed_options",
             .kind = make_names(&LauncherSettings::allowed_options, {.form = &kOptionForm, .type_name = "NAME"}),
             .help = "options of sbatch that specs may set (placement.options), without dashes before them",
             .flag = "--launcher-option"},
        }};
}

}  // namespace distilld

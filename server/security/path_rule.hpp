#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/job_spec_json.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld {

struct PathRuleOptions {
    std::vector<std::filesystem::path> roots{};  ///< folders below which specs may name paths
    /// Where `roots` is empty: whether the rule holds all the same, with `otherwise` for its roots. Asked each time.
    std::function<bool()> needed{};
    std::vector<std::filesystem::path> otherwise{};
    std::filesystem::path
        data_dir{};  ///< whose own files (keys, job store, logs, uploads) no spec may name; empty = none
    /// Folders from which the service itself has put paths into specs: such a path is allowed whatever the rest says.
    /// One that leads there from elsewhere is not.
    std::vector<std::filesystem::path> given{};
};

/// Which files and folders of this machine a job spec may name: those below some folders, wherever links lead.
/// Immutable, any thread; looks at the disk.
class PathRule {
  public:
    explicit PathRule(PathRuleOptions options) : options_(std::move(options)) {}

    /// Each path that is not allowed, with its pointer and the code path_not_allowed. The spec's paths are absolute.
    [[nodiscard]] api::SpecViolations check(const JobSpec& spec) const;

  private:
    [[nodiscard]] bool is_given(const std::filesystem::path& path) const;
    [[nodiscard]] std::string complaint(const std::string& path, const std::vector<std::filesystem::path>& roots) const;

    PathRuleOptions options_;
};

/// Where a path leads, whether it is there or not: every link of it is followed, also one whose target is missing, for
/// what is written to such a link is made where it points. Nothing: links in a circle, or a folder that cannot be
/// looked into.
[[nodiscard]] std::optional<std::filesystem::path> resolved_path(const std::filesystem::path& path);

}  // namespace distilld

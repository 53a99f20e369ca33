#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/job_spec_json.hpp"
#include "base/file_rule.hpp"
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

    /// The same for whoever opens files for this spec. Nothing: any file may be opened.
    [[nodiscard]] std::optional<FileRule> rule_of(const JobSpec& spec) const;

  private:
    [[nodiscard]] bool is_given(const std::filesystem::path& path) const;
    [[nodiscard]] std::string complaint(const std::string& path, const FileRule& rule) const;
    /// Without `given`. Nothing: the rule is not in force.
    [[nodiscard]] std::optional<FileRule> rule() const;

    PathRuleOptions options_;
};

}  // namespace distilld

#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/job_spec_json.hpp"
#include "api/value_kinds.hpp"
#include "base/file_patterns.hpp"
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
    /// Folders in which the service makes folders for jobs: none may have one for its own.
    std::vector<std::filesystem::path> shared{};
    /// Folders from which the service itself has put paths into specs: such a path is allowed whatever the rest says.
    /// One that leads there from elsewhere is not.
    std::vector<std::filesystem::path> given{};
};

/// Which files and folders of this machine a job spec may name: those below some folders, wherever links lead. What the
/// job writes is moreover none of these folders, nor one above them or above the data folder. A pattern is looked for
/// only when the folder where that begins is allowed, and within PatternBudget::of_a_request() for the whole spec.
/// Immutable, any thread; looks at the disk.
class PathRule {
  public:
    explicit PathRule(PathRuleOptions options) : options_(std::move(options)) {}

    /// Each path that is not allowed, with its pointer and the code path_not_allowed. The spec's paths are absolute.
    [[nodiscard]] api::SpecViolations check(const JobSpec& spec) const;

    /// The same for whoever opens files for this spec. Nothing: any file may be opened.
    [[nodiscard]] std::optional<FileRule> rule_of(const JobSpec& spec) const;

  private:
    /// What one check judges by, links resolved.
    struct Grounds {
        FileRule rule;
        std::vector<std::string> kept{};  ///< nothing that a job writes may be one of these folders, or hold one
        PatternBudget budget = PatternBudget::of_a_request();
    };
    // Each says what is wrong, nothing where nothing is; `path` is how the spec has it.
    [[nodiscard]] std::string complaint(const std::string& path, api::PathUse use, Grounds& grounds) const;
    [[nodiscard]] std::string complaint_of_written(const std::string& path, const Grounds& grounds) const;
    [[nodiscard]] bool is_given(const std::filesystem::path& path) const;
    /// Without `given`. Nothing: the rule is not in force.
    [[nodiscard]] std::optional<FileRule> rule() const;

    PathRuleOptions options_;
};

}  // namespace distilld

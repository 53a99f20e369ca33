#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "api/job_spec_json.hpp"
#include "api/kinds/value_kinds.hpp"
#include "base/files/file_patterns.hpp"
#include "base/files/file_rule.hpp"

namespace distilld {

struct PathRuleOptions {
    std::vector<std::filesystem::path> roots{};  ///< folders that hold all paths of specs
    /// If `roots` is empty: whether the rule applies with the roots `otherwise`. Called each time.
    std::function<bool()> needed{};
    std::vector<std::filesystem::path> otherwise{};
    std::filesystem::path data_dir{};  ///< specs may not name what the service keeps in it; empty = none
    /// Folders in which the service creates folders for jobs; a job may not use such a folder itself.
    std::vector<std::filesystem::path> shared{};
    /// Folders of paths that the service itself put into specs. Such paths are always allowed, but not links to them.
    std::vector<std::filesystem::path> given{};
};

/// The files and folders that a job spec may name: those below some folders, after links are resolved. An output may
/// not be or contain one of these folders or the data folder. A pattern is searched only if its first folder is
/// allowed, within one budget for the whole spec. Immutable, any thread; reads the disk.
class PathRule {
  public:
    explicit PathRule(PathRuleOptions options) : options_(std::move(options)) {}

    /// Each forbidden path, with its pointer and the code path_not_allowed. The spec's paths are absolute.
    [[nodiscard]] api::SpecViolations check(const JobSpec& spec,
                                            PatternBudget budget = PatternBudget::of_a_request()) const;

    /// The rule for opening files of this spec. nullopt: any file may be opened.
    [[nodiscard]] std::optional<FileRule> rule_of(const JobSpec& spec) const;

  private:
    /// The rule for one check, with links resolved.
    struct Grounds {
        FileRule rule;
        std::vector<std::string> kept{};  ///< no output of a job may be or contain one of these
        PatternBudget budget;
    };
    // Each returns what is wrong, or an empty text; `path` is as in the spec.
    [[nodiscard]] std::string complaint(const std::string& path, api::PathUse use, Grounds& grounds) const;
    [[nodiscard]] std::string complaint_of_written(const std::string& path, const Grounds& grounds) const;
    [[nodiscard]] bool is_given(const std::filesystem::path& path) const;
    /// Without `given`. nullopt: the rule does not apply.
    [[nodiscard]] std::optional<FileRule> rule() const;

    PathRuleOptions options_;
};

}  // namespace distilld

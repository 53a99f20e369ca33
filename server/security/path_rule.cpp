#include "server/security/path_rule.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/spec_fields.hpp"
#include "api/spec_paths.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOwnFiles[] = {"keys.", ".keys.", "jobs.sqlite", "audit.jsonl", "audit-refused.jsonl",
                                          "lock",  "logs",   "files",       "launcher"};

std::vector<std::string> resolved(const std::vector<fs::path>& roots) {
    std::vector<std::string> found;
    for (const fs::path& root : roots) {
        if (const auto there = resolved_path(fs::absolute(root))) {
            found.push_back(there->string());
        }
    }
    return found;
}

}  // namespace

bool PathRule::is_given(const fs::path& path) const {
    const auto place = resolved_path(path);
    return place && std::ranges::any_of(options_.given, [&](const fs::path& folder) {
               const auto there = resolved_path(fs::absolute(folder));
               return is_below(path.lexically_normal(), fs::absolute(folder).lexically_normal()) && there &&
                      is_below(*place, *there);
           });
}

std::string PathRule::complaint_of_written(const std::string& path, const Grounds& grounds) const {
    const auto place = resolved_path(path);
    const auto lies_in_it = [&place](const std::string& folder) { return place && is_below(folder, *place); };
    if (std::ranges::any_of(grounds.kept, lies_in_it)) {
        return "'" + path +
               "' is shared with others, or is above such a folder (--root and --data-dir of distilld serve): "
               "name a folder below it that is only for the job";
    }
    return {};
}

std::string PathRule::complaint(const std::string& path, api::PathUse use, Grounds& grounds) const {
    if (is_given(path)) {
        return {};
    }
    const auto complaint_of_place = [&](const fs::path& meant) {
        return complaint_about(path, resolved_path(meant), grounds.rule);
    };
    // Check the fixed part first, so that no other folder is searched.
    auto why = complaint_of_place(use == api::PathUse::reads ? fixed_part(path) : fs::path(path));
    if (why.empty() && use != api::PathUse::reads) {
        why = complaint_of_written(path, grounds);
    }
    if (!why.empty() || use != api::PathUse::reads || !looks_like_pattern(path)) {
        return why;
    }
    auto matches = files_matching(path, grounds.budget, &grounds.rule);
    if (!matches) {
        const bool unreadable = matches.error().kind == ErrorKind::io;  // the job will report it
        return unreadable ? std::string() : matches.error().message;
    }
    matches->push_back(path);  // a file may have the pattern as its name
    for (auto match = matches->begin(); why.empty() && match != matches->end(); ++match) {
        why = complaint_of_place(*match);
    }
    return why;
}

std::optional<FileRule> PathRule::rule() const {
    if (options_.roots.empty() && (!options_.needed || !options_.needed())) {
        return std::nullopt;
    }
    FileRule rule;
    rule.roots = resolved(options_.roots.empty() ? options_.otherwise : options_.roots);
    if (!options_.data_dir.empty()) {
        rule.own_folder = resolved_path(fs::absolute(options_.data_dir)).value_or(fs::path()).string();
    }
    rule.own_names.assign(std::begin(kOwnFiles), std::end(kOwnFiles));
    return rule;
}

std::optional<FileRule> PathRule::rule_of(const JobSpec& spec) const {
    std::optional<FileRule> rule = this->rule();
    if (rule) {
        api::each_path(spec, api::spec_table(), [&](const api::NamedPath& named) {
            const auto place = resolved_path(named.path);
            if (place && is_given(named.path)) {
                rule->given.push_back(place->string());
            }
        });
    }
    return rule;
}

api::SpecViolations PathRule::check(const JobSpec& spec, PatternBudget budget) const {
    api::SpecViolations found;
    std::optional<FileRule> rule = this->rule();
    if (!rule) {
        return found;
    }
    Grounds grounds{.rule = *std::move(rule), .budget = budget};
    grounds.kept = grounds.rule.roots;
    if (!grounds.rule.own_folder.empty()) {
        grounds.kept.push_back(grounds.rule.own_folder);
    }
    std::ranges::move(resolved(options_.shared), std::back_inserter(grounds.kept));
    api::each_path(spec, api::spec_table(), [&](const api::NamedPath& named) {
        auto why = complaint(named.path, named.use, grounds);
        if (!why.empty()) {
            found.violations.push_back({named.pointer, "path_not_allowed", std::move(why)});
        }
    });
    return found;
}

}  // namespace distilld

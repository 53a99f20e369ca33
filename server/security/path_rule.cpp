#include "server/security/path_rule.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/spec_fields.hpp"
#include "base/file_patterns.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOwnFiles[] = {"keys.", "jobs.sqlite", "audit.jsonl", "lock", "logs", "files"};

std::vector<std::string> resolved(const std::vector<fs::path>& roots) {
    std::vector<std::string> found;
    for (const fs::path& root : roots) {
        if (const auto there = resolved_path(fs::absolute(root))) {
            found.push_back(there->string());
        }
    }
    return found;
}

/// What a path stands for: itself, and of a pattern the folder that it searches and what it matches.
std::vector<std::string> meant_by(const std::string& path) {
    if (!looks_like_pattern(path)) {
        return {path};
    }
    std::vector<std::string> all;
    fs::path fixed;
    for (const fs::path& part : fs::path(path)) {
        if (looks_like_pattern(part.string())) {
            break;
        }
        fixed /= part;
    }
    all.push_back(fixed.string());
    if (auto matches = files_matching(path)) {
        std::ranges::move(*matches, std::back_inserter(all));
    }
    all.push_back(path);  // a file may be called so
    return all;
}

template <class Judge>
void check_fields(JobSpec& spec, const std::string& section, const std::string& shown_as, const Judge& judge) {
    for (const auto& field : api::spec_table().fields) {
        if (!section.empty() && field.section() != section) {
            continue;
        }
        const auto paths = field.kind->paths(spec);
        for (std::size_t i = 0; i < paths.size(); ++i) {
            auto pointer = section.empty() ? std::string(field.pointer) : shown_as + "/" + std::string(field.name());
            pointer += paths.size() > 1 ? "/" + std::to_string(i) : "";
            judge(pointer, *paths[i]);
        }
    }
}

template <class Judge>
void for_each_path(const JobSpec& spec, const Judge& judge) {
    JobSpec copy = spec;  // kinds give paths that can be changed
    check_fields(copy, "", "", judge);
    for (const auto& [name, teacher] : spec.teachers) {
        JobSpec alone;
        alone.teacher = teacher;
        check_fields(alone, "/teacher", "/teachers/" + name, judge);
    }
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

std::string PathRule::complaint(const std::string& path, const FileRule& rule) const {
    if (is_given(path)) {
        return {};
    }
    for (const std::string& one : meant_by(path)) {
        if (std::string why = complaint_about(path, resolved_path(one), rule); !why.empty()) {
            return why;
        }
    }
    return {};
}

std::optional<FileRule> PathRule::rule() const {
    if (options_.roots.empty() && (!options_.needed || !options_.needed())) {
        return std::nullopt;
    }
    FileRule rule;
    rule.roots = resolved(options_.roots.empty() ? options_.otherwise : options_.roots);
    if (const auto home = resolved_path(fs::absolute(options_.data_dir)); home && !options_.data_dir.empty()) {
        rule.own_folder = home->string();
    }
    rule.own_names.assign(std::begin(kOwnFiles), std::end(kOwnFiles));
    return rule;
}

std::optional<FileRule> PathRule::rule_of(const JobSpec& spec) const {
    std::optional<FileRule> rule = this->rule();
    if (rule) {
        for_each_path(spec, [&](const std::string&, const std::string& path) {
            const auto place = path.empty() ? std::nullopt : resolved_path(path);
            if (place && is_given(path)) {
                rule->given.push_back(place->string());
            }
        });
    }
    return rule;
}

api::SpecViolations PathRule::check(const JobSpec& spec) const {
    api::SpecViolations found;
    const std::optional<FileRule> rule = this->rule();
    if (!rule) {
        return found;
    }
    for_each_path(spec, [&](const std::string& pointer, const std::string& path) {
        auto why = path.empty() ? std::string() : complaint(path, *rule);
        if (!why.empty()) {
            found.violations.push_back({pointer, "path_not_allowed", std::move(why)});
        }
    });
    return found;
}

}  // namespace distilld

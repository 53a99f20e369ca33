#include "server/security/path_rule.hpp"

#include <algorithm>
#include <deque>
#include <system_error>
#include <utility>

#include "api/spec_fields.hpp"
#include "base/file_patterns.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // as the kernel has it
constexpr std::string_view kOwnFiles[] = {"keys.", "jobs.sqlite", "audit.jsonl", "lock", "logs", "files"};

bool is_below(const fs::path& path, const fs::path& root) {
    return std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first == root.end();
}

/// The data folder itself, or one of the files that the service keeps in it.
bool is_own(const fs::path& path, const fs::path& data_dir) {
    if (!is_below(path, data_dir)) {
        return false;
    }
    auto rest = path.begin();
    std::advance(rest, std::distance(data_dir.begin(), data_dir.end()));
    if (rest == path.end()) {
        return true;
    }
    const std::string name = rest->string();
    return std::ranges::any_of(kOwnFiles, [&name](std::string_view own) {
        return name == own ||
               (name.starts_with(own) && (own.ends_with('.') || own.find('.') != std::string_view::npos));
    });
}

std::vector<fs::path> resolved(const std::vector<fs::path>& roots) {
    std::vector<fs::path> found;
    for (const fs::path& root : roots) {
        if (auto there = resolved_path(fs::absolute(root))) {
            found.push_back(*std::move(there));
        }
    }
    return found;
}

std::string listed(const std::vector<fs::path>& roots) {
    std::string text;
    for (const fs::path& root : roots) {
        text += (text.empty() ? "" : ", ") + root.string();
    }
    return text.empty() ? "none" : text;
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

}  // namespace

std::optional<fs::path> resolved_path(const fs::path& path) {
    std::deque<fs::path> left(path.begin(), path.end());
    fs::path at = "/";
    int links = 0;
    while (!left.empty()) {
        const fs::path part = std::move(left.front());
        left.pop_front();
        if (part.empty() || part == "." || part == "/") {
            continue;
        }
        if (part == "..") {
            at = at.parent_path();
            continue;
        }
        const fs::path next = at / part;
        std::error_code failed;
        const auto type = fs::symlink_status(next, failed).type();
        if (type == fs::file_type::none) {
            return std::nullopt;
        }
        if (type != fs::file_type::symlink) {
            at = next;
            continue;
        }
        const fs::path target = fs::read_symlink(next, failed);
        if (failed || ++links > kMaxLinks) {
            return std::nullopt;
        }
        if (target.is_absolute()) {
            at = "/";
        }
        left.insert(left.begin(), target.begin(), target.end());
    }
    return at;
}

bool PathRule::is_given(const fs::path& path) const {
    const auto place = resolved_path(path);
    return place && std::ranges::any_of(options_.given, [&](const fs::path& folder) {
               const auto there = resolved_path(fs::absolute(folder));
               return is_below(path.lexically_normal(), fs::absolute(folder).lexically_normal()) && there &&
                      is_below(*place, *there);
           });
}

std::string PathRule::complaint(const std::string& path, const std::vector<fs::path>& roots) const {
    const auto home = options_.data_dir.empty() ? std::nullopt : resolved_path(fs::absolute(options_.data_dir));
    if (is_given(path)) {
        return {};
    }
    for (const std::string& one : meant_by(path)) {
        const auto place = resolved_path(one);
        if (!place || std::ranges::none_of(roots, [&place](const fs::path& root) { return is_below(*place, root); })) {
            // Where a link leads is not told: whoever may not go there need not know what is there.
            return "'" + path + "' is not below a folder that specs may name (distilld serve --root): " + listed(roots);
        }
        if (home && is_own(*place, *home)) {
            return "'" + path + "' is a file of the service itself";
        }
    }
    return {};
}

api::SpecViolations PathRule::check(const JobSpec& spec) const {
    api::SpecViolations found;
    if (options_.roots.empty() && (!options_.needed || !options_.needed())) {
        return found;
    }
    const auto roots = resolved(options_.roots.empty() ? options_.otherwise : options_.roots);
    const auto judge = [&](const std::string& pointer, const std::string& path) {
        auto why = path.empty() ? std::string() : complaint(path, roots);
        if (!why.empty()) {
            found.violations.push_back({pointer, "path_not_allowed", std::move(why)});
        }
    };
    JobSpec copy = spec;  // kinds give paths that can be changed
    check_fields(copy, "", "", judge);
    for (const auto& [name, teacher] : spec.teachers) {
        JobSpec alone;
        alone.teacher = teacher;
        check_fields(alone, "/teacher", "/teachers/" + name, judge);
    }
    return found;
}

}  // namespace distilld

#include "api/named_paths.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file_patterns.hpp"

namespace distilld::api {
namespace {

namespace fs = std::filesystem;

/// Whether a pattern such as data/*.jsonl has a match.
bool matches(const std::string& pattern) {
    if (!looks_like_pattern(pattern)) {
        return false;
    }
    const auto files = files_matching(pattern);
    return files && !files->empty();
}

/// The end of a path, which quote() cuts off, tells most.
std::string in_full(const std::string& path) {
    return "'" + path + "'";
}

/// What is wrong with a path; empty when nothing is.
std::string complaint(const std::string& path, Named there) {
    std::error_code failed;
    const auto status = fs::status(path, failed);
    if (there == Named::folder) {
        return fs::is_directory(status) ? "" : in_full(path) + " is no folder";
    }
    // A device or a pipe may be read like a file.
    if ((fs::exists(status) && !fs::is_directory(status)) || matches(path)) {
        return "";
    }
    return in_full(path) + (fs::exists(status) ? " is a folder, not a file" : " is no file");
}

void check(JobSpec& spec, const SpecTable& table, const std::string& section, const std::string& shown_as,
           std::vector<Violation>& violations) {
    for (const auto& field : table.fields) {
        if (field.there == Named::nothing || (!section.empty() && field.section() != section)) {
            continue;
        }
        const auto paths = field.kind->paths(spec);
        for (std::size_t i = 0; i < paths.size(); ++i) {
            auto detail = paths[i]->empty() ? "" : complaint(*paths[i], field.there);
            if (!detail.empty()) {
                auto pointer =
                    section.empty() ? std::string(field.pointer) : shown_as + "/" + std::string(field.name());
                pointer += paths.size() > 1 ? "/" + std::to_string(i) : "";
                violations.push_back({std::move(pointer), "not_found", std::move(detail)});
            }
        }
    }
}

}  // namespace

std::vector<Violation> missing_paths(const JobSpec& spec, const SpecTable& table) {
    std::vector<Violation> violations;
    JobSpec copy = spec;  // kinds give paths that can be changed
    check(copy, table, "", "", violations);
    for (const auto& [name, teacher] : spec.teachers) {
        JobSpec alone;
        alone.teacher = teacher;
        check(alone, table, "/teacher", "/teachers/" + name, violations);
    }
    return violations;
}

}  // namespace distilld::api

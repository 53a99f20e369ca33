#include "api/named_paths.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

#include "api/spec_paths.hpp"
#include "base/files/file_patterns.hpp"

namespace distilld::api {
namespace {

namespace fs = std::filesystem;

/// quote() would cut off the end of a path, which says the most.
std::string in_full(const std::string& path) {
    return "'" + path + "'";
}

/// What is wrong with a path; empty if nothing is.
std::string complaint(const std::string& path, Named there, PatternBudget& budget) {
    std::error_code failed;
    const auto status = fs::status(path, failed);
    if (there == Named::folder) {
        return fs::is_directory(status) ? "" : in_full(path) + " is not a folder" + hub_hint(path);
    }
    // A device or a pipe can be read like a file.
    if (fs::exists(status) && !fs::is_directory(status)) {
        return "";
    }
    if (looks_like_pattern(path)) {
        const auto files = files_matching(path, budget);
        if (!files) {
            return files.error().message;
        }
        if (!files->empty()) {
            return "";
        }
    }
    return in_full(path) + (fs::exists(status) ? " is a folder, not a file" : " is not a file");
}

}  // namespace

std::string hub_hint(const std::string& path) {
    std::error_code failed;
    const auto slash = path.find('/');
    const bool two_names = slash != std::string::npos && slash > 0 && slash + 1 < path.size() &&
                           path.find('/', slash + 1) == std::string::npos;
    if (!two_names || path.front() == '.' || fs::exists(path.substr(0, slash), failed)) {
        return "";
    }
    const std::string folder = "models/" + path.substr(slash + 1);
    return "; a model of the Hugging Face Hub is downloaded first: hf download " + path + " --local-dir " + folder;
}

std::vector<Violation> missing_paths(const JobSpec& spec, const SpecTable& table) {
    std::vector<Violation> violations;
    PatternBudget budget = PatternBudget::of_a_request();
    each_path(spec, table, [&](const NamedPath& named) {
        const bool module = named.pointer == "/student/model" && spec.student.format == StudentFormat::torchscript;
        const Named there = module ? Named::file : named.field.there;
        auto detail = there == Named::nothing ? std::string() : complaint(named.path, there, budget);
        if (!detail.empty()) {
            violations.push_back({named.pointer, "not_found", std::move(detail)});
        }
    });
    return violations;
}

}  // namespace distilld::api

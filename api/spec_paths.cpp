#include "api/spec_paths.hpp"

#include <utility>

#include "api/spec_fields.hpp"

namespace distilld::api {
namespace {

std::string absolute(const std::string& text, const std::filesystem::path& base) {
    if (text.empty()) {
        return text;
    }
    return normal_path((base / text).string()).string();
}

}  // namespace

std::filesystem::path normal_path(const std::string& text) {
    auto path = std::filesystem::path(text).lexically_normal();
    if (!path.has_filename() && path.has_parent_path() && path != path.root_path()) {
        path = path.parent_path();
    }
    return path;
}

void make_paths_absolute(JobSpec& spec, const std::filesystem::path& base, const SpecTable& table) {
    for (const auto& field : table.fields) {
        for (std::string* path : field.kind->paths(spec)) {
            *path = absolute(*path, base);
        }
    }
    for (auto& [name, teacher] : spec.teachers) {
        JobSpec alone;
        alone.teacher = std::move(teacher);
        make_paths_absolute(alone, base, table);
        teacher = *std::move(alone.teacher);
    }
}

void make_paths_absolute(JobSpec& spec, const std::filesystem::path& base) {
    make_paths_absolute(spec, base, spec_table());
}

}  // namespace distilld::api

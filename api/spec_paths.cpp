#include "api/spec_paths.hpp"

#include <utility>

#include "api/spec_fields.hpp"
#include "pipeline/core/teacher_name.hpp"

namespace distilld::api {
namespace {

bool fills_store(const TeacherSpec& teacher) {
    const bool asks = !teacher.endpoints.empty() || !teacher.model_dir.empty();
    return asks && (teacher.cache == TeacherCache::write || teacher.cache == TeacherCache::readwrite);
}

PathUse use_of(const SpecField& field, const JobSpec& spec) {
    const PathUse use = field.kind->path_use().value();
    const bool fills = spec.kind == JobKind::generate || (spec.teacher() != nullptr && fills_store(*spec.teacher()));
    return use == PathUse::shares && !fills ? PathUse::reads : use;
}

void each_path_of(const JobSpec& spec, const SpecTable& table, const std::string& section, const std::string& shown_as,
                  const VisitPath& visit) {
    for (const auto& field : table.fields) {
        if (!section.empty() && field.section() != section) {
            continue;
        }
        const auto paths = field.kind.paths(spec);
        for (std::size_t i = 0; i < paths.size(); ++i) {
            if (paths[i].empty()) {
                continue;
            }
            auto pointer = section.empty() ? std::string(field.pointer) : shown_as + "/" + std::string(field.name());
            pointer += paths.size() > 1 ? "/" + std::to_string(i) : "";
            visit({field, std::move(pointer), paths[i], use_of(field, spec)});
        }
    }
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
        field.kind.change_paths(
            spec, [&base](const std::string& path) { return normal_path((base / path).string()).string(); });
    }
    for (auto& [name, teacher] : spec.teachers) {
        if (name.empty()) {
            continue;  // the table has its fields
        }
        JobSpec alone;
        alone.teachers[""] = std::move(teacher);
        make_paths_absolute(alone, base, table);
        teacher = std::move(*alone.teacher());
    }
}

void each_path(const JobSpec& spec, const SpecTable& table, const VisitPath& visit) {
    each_path_of(spec, table, "", "", visit);
    for (const auto& [name, teacher] : spec.teachers) {
        if (name.empty()) {
            continue;
        }
        JobSpec alone;
        alone.kind = spec.kind;
        alone.teachers[""] = teacher;
        each_path_of(alone, table, "/teacher", teacher_pointer(name), visit);
    }
}

void make_paths_absolute(JobSpec& spec, const std::filesystem::path& base) {
    make_paths_absolute(spec, base, spec_table());
}

}  // namespace distilld::api

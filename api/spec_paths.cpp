#include "api/spec_paths.hpp"

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

void make_paths_absolute(JobSpec& spec, const std::filesystem::path& base) {
    spec.student.model = absolute(spec.student.model, base);
    spec.dataset.train = absolute(spec.dataset.train, base);
    spec.dataset.eval = absolute(spec.dataset.eval, base);
    spec.output = absolute(spec.output, base);
    spec.checkpoint.dir = absolute(spec.checkpoint.dir, base);
    if (spec.teacher) {
        spec.teacher->ca_file = absolute(spec.teacher->ca_file, base);
    }
}

}  // namespace distilld::api

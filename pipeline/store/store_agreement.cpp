#include "pipeline/store/store_agreement.hpp"

#include <string>

namespace distilld {
namespace {

bool equal_teachers(const std::string& stored, const std::string& wanted) {
    return stored.empty() || wanted.empty() || stored == wanted;
}

}  // namespace

Result<StoreManifest> agree_on_manifest(const std::filesystem::path& folder, const StoreManifest& wanted,
                                        const SameTeacher& same_teacher) {
    auto completed = complete_manifest(wanted);
    if (!completed) {
        return completed.error();
    }
    if (!store_exists(folder)) {
        if (auto written = write_manifest(folder, *completed); !written) {
            return written.error();
        }
        return completed;
    }
    auto stored = read_manifest(folder);
    if (!stored) {
        return stored.error();
    }
    if (const auto difference = find_difference(*stored, *completed)) {
        return invalid_input(folder.string() + ": the store there is of other data: " + *difference);
    }
    if (!(same_teacher ? same_teacher(stored->teacher, completed->teacher)
                       : equal_teachers(stored->teacher, completed->teacher))) {
        return invalid_input(folder.string() + ": the store there is of another teacher" +
                             (stored->teacher_name.empty() ? std::string() : " (" + stored->teacher_name + ")"));
    }
    return stored;
}

}  // namespace distilld

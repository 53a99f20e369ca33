#include "server/jobs/checks/named_files_check.hpp"

#include <utility>

#include "api/named_paths.hpp"
#include "api/spec_fields.hpp"
#include "server/jobs/checks/model_folder_check.hpp"

namespace distilld {

api::SpecViolations check_named_files(const JobSpec& spec, LookInside look_inside, const FileRule* rule) {
    api::SpecViolations found;
    if (look_inside == LookInside::yes) {
        found = check_model_folder(spec.student, spec.kind, rule);
    }
    const bool knows_model = !found.violations.empty();
    for (api::Violation& missing : api::missing_paths(spec, api::spec_table())) {
        if (!knows_model || missing.pointer != "/student/model") {
            found.violations.push_back(std::move(missing));
        }
    }
    return found;
}

}  // namespace distilld

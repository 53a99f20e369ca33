#pragma once

#include "api/job_spec.hpp"
#include "api/job_spec_json.hpp"
#include "server/settings/service_settings.hpp"

namespace distilld {

/// What the launcher of the service cannot or may not do of the spec's placement: with workers on this machine, several
/// nodes or ranks and what only a cluster has; otherwise, options that are not in launcher.allowed_options.
[[nodiscard]] api::SpecViolations check_placement(const JobSpec& spec, const LauncherSettings& launcher);

}  // namespace distilld

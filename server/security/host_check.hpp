#pragma once

#include "api/job_spec_json.hpp"
#include "pipeline/core/host_rule.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// URLs of the spec that a job may not talk to, with the code host_not_allowed: of teachers by the rule, of sinks by
/// the one without patterns. Names are not resolved here: the worker judges each address again before it connects to
/// it.
[[nodiscard]] api::SpecViolations check_hosts(const JobSpec& spec, const HostRule& rule);

}  // namespace distilld

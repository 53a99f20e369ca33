#pragma once

#include "api/job_spec.hpp"
#include "api/job_spec_json.hpp"
#include "net/host_rule.hpp"

namespace distilld {

/// Forbidden URLs of the spec, with the code host_not_allowed: teachers by the rule, sinks by the rule without its
/// patterns. Names are not resolved here; the worker checks each address before it connects.
[[nodiscard]] api::SpecViolations check_hosts(const JobSpec& spec, const HostRule& rule);

}  // namespace distilld

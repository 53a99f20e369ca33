#pragma once

#include <boost/json/object.hpp>
#include <boost/system/result.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "api/job_spec.hpp"
#include "api/kinds/violation.hpp"

/// The job spec as JSON: the only place that reads or writes it. The table of api/spec_fields.hpp has its fields,
/// ranges and defaults. Fields that it does not require may be left out; no field may be null.
namespace distilld::api {

struct SpecTable;

/// Limits of a spec: size and nesting.
inline constexpr std::size_t kSpecSizeLimit = 1U << 20;
inline constexpr std::size_t kSpecDepthLimit = 32;

/// All violations of a spec: duplicate keys, then field by field in the order of the table.
struct SpecViolations {
    std::vector<Violation> violations;
};

/// One line per violation, at most kMaxListed: "/training/beta: …" (no final newline).
[[nodiscard]] std::string describe(const SpecViolations& violations);

/// boost::system::result finds this through argument-dependent lookup. Throws ErrorException(invalid_input).
[[noreturn]] void throw_exception_from_error(const SpecViolations& violations, const boost::source_location&);

using ParsedSpec = boost::system::result<JobSpec, SpecViolations>;

/// Validates the whole spec and lists every violation. Reads no files, so folders may still be missing.
[[nodiscard]] ParsedSpec parse_job_spec(std::string_view json);

/// The same with another table than spec_table(), into `spec`, which must hold the defaults. `spec` is valid only if
/// there are no violations.
[[nodiscard]] SpecViolations read_job_spec(std::string_view json, JobSpec& spec, const SpecTable& table);

/// The spec with every default filled in (empty optional texts and an absent teacher are left out).
/// parse_job_spec(to_json(s)) returns s for every s that parse_job_spec returned.
[[nodiscard]] std::string to_json(const JobSpec& spec);
[[nodiscard]] boost::json::object to_json_object(const JobSpec& spec);
[[nodiscard]] boost::json::object to_json_object(const JobSpec& spec, const SpecTable& table);

}  // namespace distilld::api

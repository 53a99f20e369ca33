#pragma once

#include <boost/json/object.hpp>
#include <boost/system/result.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "api/violation.hpp"
#include "pipeline/core/job_spec.hpp"

/// The job spec as JSON: the only place that reads or writes it. Its fields, their ranges and defaults stand in the
/// table of api/spec_fields.hpp. What the table does not require may be left out; null is not a value of any field.
namespace distilld::api {

struct SpecTable;

/// Largest spec that is read, and its deepest nesting.
inline constexpr std::size_t kSpecSizeLimit = 1U << 20;
inline constexpr std::size_t kSpecDepthLimit = 32;

/// All that is wrong with a spec: keys that stand twice, then field by field in the order of the table.
struct SpecViolations {
    std::vector<Violation> violations;
};

/// One line a violation, kMaxListed of them: "/training/beta: …" (no final newline).
[[nodiscard]] std::string describe(const SpecViolations& violations);

/// Found by boost::system::result through argument-dependent lookup: ErrorException(invalid_input).
[[noreturn]] void throw_exception_from_error(const SpecViolations& violations, const boost::source_location&);

using ParsedSpec = boost::system::result<JobSpec, SpecViolations>;

/// Validates the whole spec; every violation is listed. Reads no file, so folders may still turn out missing.
[[nodiscard]] ParsedSpec parse_job_spec(std::string_view json);

/// The same by another table than spec_table(), into `spec`, which holds the defaults. The spec is of use only when
/// nothing is wrong.
[[nodiscard]] SpecViolations read_job_spec(std::string_view json, JobSpec& spec, const SpecTable& table);

/// The spec with every default filled in (empty optional texts and an absent teacher are left out).
/// parse_job_spec(to_json(s)) gives s back for every s that parse_job_spec gave.
[[nodiscard]] std::string to_json(const JobSpec& spec);
[[nodiscard]] boost::json::object to_json_object(const JobSpec& spec);
[[nodiscard]] boost::json::object to_json_object(const JobSpec& spec, const SpecTable& table);

}  // namespace distilld::api

#pragma once

#include <array>
#include <boost/json/object.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/violation.hpp"
#include "pipeline/core/job_spec.hpp"

/// What fields of a spec have to do with each other. What can be said of one field alone stands in its row
/// (spec_fields.cpp).
namespace distilld::api {

/// The two fields of `training` that say how long a run is; exactly one of them is given.
inline constexpr std::array<std::string_view, 2> kRunLength{"max_steps", "epochs"};

/// A spec while it is read.
struct SpecReading {
    const boost::json::object& document;
    JobSpec& spec;  ///< with the fields that were read so far
    std::vector<Violation>& violations;
    std::set<std::string_view> good{};  ///< pointers of the fields that were given and are good

    [[nodiscard]] bool given(std::string_view pointer) const;
    void violate(std::string_view pointer, std::string code, std::string detail);
    void require(std::string_view pointer, std::string_view what);
};

struct SpecRule {
    /// The field, or section of named members, behind which its violations are listed; a field's section must stand in
    /// the spec.
    std::string_view after;
    void (*check)(SpecReading&);
};

[[nodiscard]] std::span<const SpecRule> spec_rules();

/// Sets what the defaults of the table leave open, in a written spec: kd_ratio is 0 without a teacher.
void write_dependent_defaults(const JobSpec& spec, boost::json::object& document);

}  // namespace distilld::api

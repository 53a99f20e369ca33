#pragma once

#include <array>
#include <boost/json/object.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/job_spec.hpp"
#include "api/kinds/violation.hpp"

/// Rules between fields of a spec. Rules for one field are in its row (spec_fields.cpp).
namespace distilld::api {

/// The two fields of `training` that set the length of a run; exactly one must be given.
inline constexpr std::array<std::string_view, 2> kRunLength{"max_steps", "epochs"};

/// A spec during parsing.
struct SpecReading {
    const boost::json::object& document;
    JobSpec& spec;  ///< with the fields that have been read so far
    std::vector<Violation>& violations;
    std::set<std::string_view> good{};  ///< pointers of the given fields that are valid

    [[nodiscard]] bool given(std::string_view pointer) const;
    void violate(std::string_view pointer, std::string code, std::string detail);
    void require(std::string_view pointer, std::string_view what);
};

struct SpecRule {
    /// Its violations are listed after this field, or section of named members. A field's section must be in the spec.
    std::string_view after;
    void (*check)(SpecReading&);
};

[[nodiscard]] std::span<const SpecRule> spec_rules();

/// The rule of jobs with samples of tensors and of TorchScript students: which fields they need, and which are for
/// language models only.
void samples_have_their_fields(SpecReading& reading);

/// The rule of jobs with /rollout: which fields they need, and defaults that follow from it.
void rollouts_are_of_a_graded_adapter(SpecReading& reading);

/// Sets defaults that depend on other fields, in a written spec: kd_ratio is 0 without a teacher.
void write_dependent_defaults(const JobSpec& spec, boost::json::object& document);

}  // namespace distilld::api

#pragma once

#include <boost/json/object.hpp>
#include <boost/system/result.hpp>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "api/job_spec_json.hpp"

namespace distilld::openai {

/// The `model` of a student that begins with random weights.
inline constexpr std::string_view kScratch = "scratch";

/// What a client asks for with POST /v1/fine_tuning/jobs, and the job spec in it: `method.distillation` holds the
/// spec's own objects, and OpenAI's members stand for fields of the spec.
struct FineTuningRequest {
    std::string model;
    std::string training_file;
    std::string validation_file;  ///< empty = none
    std::string suffix;           ///< likewise
    std::map<std::string, std::string> metadata;
    boost::json::object spec;                   ///< without files and output
    std::map<std::string, std::string> places;  ///< JSON pointers of the spec that the request has elsewhere
};

using ParsedFineTuningRequest = boost::system::result<FineTuningRequest, api::SpecViolations>;

/// Every violation of the request's own members is listed; those of the spec's fields are left to parse_job_spec().
[[nodiscard]] ParsedFineTuningRequest parse_fine_tuning_request(std::string_view json);

/// The job spec, its files and folder filled in. `validation` empty: none.
[[nodiscard]] std::string spec_of(const FineTuningRequest& request, const std::filesystem::path& training,
                                  const std::filesystem::path& validation, const std::filesystem::path& output);

/// Violations of that spec with the pointers of the request: "/training_file", "/method/distillation/teacher/…".
[[nodiscard]] api::SpecViolations in_terms_of(const FineTuningRequest& request, api::SpecViolations violations);

}  // namespace distilld::openai

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

/// The `model` of a student with random initial weights.
inline constexpr std::string_view kScratch = "scratch";

/// A request of POST /v1/fine_tuning/jobs: `method.distillation` holds objects of the job spec, and OpenAI's members
/// map to fields of the spec.
struct FineTuningRequest {
    std::string model;
    std::string training_file;
    std::string validation_file;  ///< empty = none
    std::string suffix;           ///< likewise
    std::map<std::string, std::string> metadata;
    boost::json::object spec;                   ///< without files and output
    std::map<std::string, std::string> places;  ///< JSON pointers of the spec -> of the request
};

using ParsedFineTuningRequest = boost::system::result<FineTuningRequest, api::SpecViolations>;

/// Lists every violation in the request's own members; parse_job_spec() checks the spec's fields.
[[nodiscard]] ParsedFineTuningRequest parse_fine_tuning_request(std::string_view json);

/// The job spec with its files and folder. `validation` empty: none.
[[nodiscard]] std::string spec_of(const FineTuningRequest& request, const std::filesystem::path& training,
                                  const std::filesystem::path& validation, const std::filesystem::path& output);

/// Violations of that spec, with pointers into the request: "/training_file", "/method/distillation/teacher/…".
[[nodiscard]] api::SpecViolations in_terms_of(const FineTuningRequest& request, api::SpecViolations violations);

}  // namespace distilld::openai

#include "server/estimate/job_estimate.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "api/job_spec_json.hpp"
#include "server/estimate/estimate_inputs.hpp"
#include "server/estimate/run_estimate.hpp"

namespace distilld {
namespace {

bool has_dtype(Dtype wanted, const MeasuredRun& run, const JobSpec& spec) {
    return wanted == Dtype::auto_select ? spec.student.dtype == wanted : run.dtype == to_string(wanted);
}

void add_seconds(const JobSpec& spec, const std::vector<MeasuredRun>& others, RunEstimate& estimate) {
    const std::string shape = shape_key(spec);
    if (!estimate.tokens || shape.empty()) {
        return;
    }
    std::vector<double> speeds;
    for (const MeasuredRun& other : others) {
        const auto theirs = api::parse_job_spec(other.spec_json);
        if (theirs && has_dtype(spec.student.dtype, other, *theirs) && shape_key(*theirs) == shape) {
            speeds.push_back(other.tokens_per_second);
        }
    }
    if (speeds.empty()) {
        estimate.notes.emplace_back("seconds: no job of this service has trained a student of this shape yet");
        return;
    }
    const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
    std::ranges::nth_element(speeds, middle);
    estimate.seconds = static_cast<double>(*estimate.tokens) / *middle;
    estimate.based_on = std::to_string(speeds.size()) + (speeds.size() == 1 ? " job" : " jobs") +
                        " with this student: " + std::to_string(std::llround(*middle)) + " tokens a second";
}

}  // namespace

boost::json::object estimate_job(const EstimateRequest& request) {
    const auto spec = api::parse_job_spec(request.spec_json);
    if (!spec) {
        return to_json_object(RunEstimate{});  // it has been judged valid: not reached
    }
    std::vector<std::string> notes;
    const EstimateInputs inputs = read_estimate_inputs(*spec, notes);
    RunEstimate estimate = estimate_run(*spec, inputs);
    estimate.notes.insert(estimate.notes.end(), notes.begin(), notes.end());
    add_seconds(*spec, request.others, estimate);
    return to_json_object(estimate);
}

}  // namespace distilld

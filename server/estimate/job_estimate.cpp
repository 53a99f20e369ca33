#include "server/estimate/job_estimate.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>
#include <utility>

#include "api/job_spec_json.hpp"
#include "pipeline/core/lr_schedule.hpp"
#include "server/estimate/estimate_inputs.hpp"

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
                        " with this student: " + std::to_string(std::llround(*middle)) + " tokens per second";
}

/// Finds a run in which no weight can change. The number of steps must be known.
void check_learning(const JobSpec& spec, const RunEstimate& estimate, std::vector<api::Violation>& violations) {
    if (!estimate.steps) {
        return;
    }
    const std::string why = why_nothing_is_learnt(spec.training, *estimate.steps);
    if (const auto end = why.find(": "); end != std::string::npos) {
        violations.push_back({why.substr(0, end), "conflict", why.substr(end + 2)});
    }
}

}  // namespace

JudgedJob judge_job(const JobSpec& spec) {
    JudgedJob judged;
    JobInspection inspection = inspect_job(spec);
    judged.violations = std::move(inspection.violations);
    judged.not_checked = std::move(inspection.not_checked);
    std::vector<std::string> notes;
    const EstimateInputs inputs = read_estimate_inputs(spec, std::move(inspection), notes);
    judged.estimate = estimate_run(spec, inputs);
    judged.estimate.notes.insert(judged.estimate.notes.end(), notes.begin(), notes.end());
    if (spec.kind == JobKind::train) {
        check_learning(spec, judged.estimate, judged.violations);
    }
    return judged;
}

boost::json::object estimate_job(const EstimateRequest& request) {
    auto spec = api::parse_job_spec(request.spec_json);
    if (!spec) {
        return to_json_object(RunEstimate{});  // not reached: the spec has been validated
    }
    spec->training.threads = 1;  // jobs run on the other cores
    // This process lacks a worker's environment with the keys of teachers.
    for (auto& [name, teacher] : spec->teachers) {
        teacher.api_key_env.clear();
        teacher.api_key_file.clear();
    }
    JudgedJob judged = judge_job(*spec);
    add_seconds(*spec, request.others, judged.estimate);
    auto object = to_json_object(judged.estimate);
    object["not_checked"] = boost::json::array(judged.not_checked.begin(), judged.not_checked.end());
    boost::json::array violations;
    for (const api::Violation& one : judged.violations) {
        violations.push_back({{"pointer", one.pointer}, {"code", one.code}, {"detail", one.detail}});
    }
    object["violations"] = std::move(violations);
    return object;
}

}  // namespace distilld

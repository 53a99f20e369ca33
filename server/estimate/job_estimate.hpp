#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/violation.hpp"
#include "base/describes.hpp"
#include "base/file_rule.hpp"
#include "pipeline/core/job_spec.hpp"
#include "server/estimate/run_estimate.hpp"

namespace distilld {

/// Another training job, and how fast it was.
struct MeasuredRun {
    std::string spec_json;  ///< resolved
    std::string dtype;      ///< in force
    double tokens_per_second = 0;
};

/// What an estimate is made of; it travels to the process that makes it (server/jobs/estimate_process.hpp).
struct EstimateRequest {
    std::string spec_json;            ///< resolved
    std::optional<FileRule> files{};  ///< which files may be opened for it; nothing: any
    std::vector<MeasuredRun> others{};
};

template <class Visitor, Describes<MeasuredRun> T>
void describe(Visitor& v, T& run) {
    v("spec", run.spec_json);
    v("dtype", run.dtype);
    v("tokens_per_second", run.tokens_per_second);
}

template <class Visitor, Describes<EstimateRequest> T>
void describe(Visitor& v, T& request) {
    v("spec", request.spec_json);
    v("files", request.files);
    v("others", request.others);
}

/// What can be said of a job before it runs.
struct JudgedJob {
    RunEstimate estimate;                    ///< without `seconds`
    std::vector<api::Violation> violations;  ///< what a run would refuse in its first second
    std::vector<std::string> not_checked;
};

/// Of a spec that is valid, with absolute paths, whose files are there. Reads the student's folder, the beginning of
/// the data and the output folder. Blocks, for as long as a tokenizer takes.
[[nodiscard]] JudgedJob judge_job(const JobSpec& spec);

/// The "estimate" of a dry run's answer, with "not_checked" and "violations" as members; `seconds` is the median of
/// those that trained a student of this shape in this dtype. Blocks.
[[nodiscard]] boost::json::object estimate_job(const EstimateRequest& request);

}  // namespace distilld

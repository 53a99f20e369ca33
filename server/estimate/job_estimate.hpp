#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "api/kinds/violation.hpp"
#include "base/describes.hpp"
#include "base/files/file_rule.hpp"
#include "server/estimate/run_estimate.hpp"

namespace distilld {

/// Another training job and its speed.
struct MeasuredRun {
    std::string spec_json;  ///< resolved
    std::string dtype;      ///< effective
    double tokens_per_second = 0;
};

/// Inputs of an estimate, for the process that computes it (server/jobs/checks/estimate_process.hpp).
struct EstimateRequest {
    std::string spec_json;            ///< resolved
    std::optional<FileRule> files{};  ///< files that the estimate may open; nullopt: any
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

/// The estimate of a job.
struct JudgedJob {
    RunEstimate estimate;                    ///< without `seconds`
    std::vector<api::Violation> violations;  ///< violations that a run would find in its first second
    std::vector<std::string> not_checked;
};

/// For a valid spec with absolute paths to existing files. Reads the student's folder, the beginning of the data and
/// the output folder. Blocks as long as loading a tokenizer takes.
[[nodiscard]] JudgedJob judge_job(const JobSpec& spec);

/// The "estimate" in the answer to a dry run, with "not_checked" and "violations" as members. `seconds` follows from
/// the median speed of the runs that trained a student of this shape in this dtype. Blocks.
[[nodiscard]] boost::json::object estimate_job(const EstimateRequest& request);

}  // namespace distilld

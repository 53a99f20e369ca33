#include "server/jobs/job_refusals.hpp"

#include <algorithm>
#include <array>
#include <boost/algorithm/string/replace.hpp>
#include <string>

#include "api/problem.hpp"
#include "server/jobs/api_route.hpp"

namespace distilld {
namespace {

/// A text may hold {id} and {state}; without one the violations say what is wrong.
struct Refusal {
    JobVerdict verdict;
    unsigned status;
    const char* code;
    const char* text = nullptr;
    const char* param = "";
    const char* retry_after_seconds = nullptr;
};

constexpr std::array kRefusals{
    Refusal{JobVerdict::not_found, 404, "job_not_found", "there is no job '{id}'", "id"},
    Refusal{JobVerdict::terminal, 409, "job_is_terminal", "job '{id}' {state}"},
    Refusal{JobVerdict::not_terminal, 409, "job_is_not_terminal",
            "job '{id}' has not ended: it {state}; cancel it first"},
    Refusal{JobVerdict::cancelling, 409, "job_is_cancelling",
            "job '{id}' is about to be cancelled: it can be resumed when it is"},
    Refusal{JobVerdict::not_running, 409, "job_is_not_running", "job '{id}' is not running: it {state}"},
    Refusal{JobVerdict::no_checkpoints, 409, "job_has_no_checkpoints",
            "job '{id}' is of kind generate, which has no checkpoints: what it has written is kept"},
    Refusal{JobVerdict::no_remote_teacher, 409, "job_has_no_remote_teacher",
            "job '{id}' asks no teacher's endpoints: there are no requests that max_concurrent could limit",
            "/max_concurrent"},
    Refusal{JobVerdict::invalid_change, 400, "invalid_job_change"},
    Refusal{JobVerdict::invalid_spec, 400, "invalid_job_spec"},
    Refusal{JobVerdict::not_yours, 400, "invalid_job_spec"},
    Refusal{JobVerdict::not_runnable, 409, "job_is_not_runnable"},
    Refusal{JobVerdict::output_in_use, 409, "output_in_use"},
    Refusal{JobVerdict::key_reused, 422, "idempotency_key_reused", "the Idempotency-Key was used with another body",
            "idempotency-key"},
    Refusal{JobVerdict::queue_full, 429, "queue_full",
            "as many jobs wait as the service takes (--max-queued); submit it again when some have begun", "", "30"},
    Refusal{JobVerdict::stopping, 503, "stopping", "the service is stopping and takes no jobs", "", "10"},
};

api::Problem problem_of_violations(const api::Request& request, const JobOutcome& outcome, const Refusal& row) {
    api::Problem problem = api::spec_problem(outcome.violations, request.path);
    problem.code = row.code;
    if (row.status != 400 || outcome.kind == JobVerdict::invalid_change) {
        problem.title.clear();
        return problem;
    }
    const auto& all = outcome.violations.violations;
    if (!all.empty() && (all.front().code == "path_not_allowed" || all.front().code == "host_not_allowed")) {
        problem.code = all.front().code;
    }
    return problem;
}

}  // namespace

api::Response refusal(const api::Request& request, const JobOutcome& outcome) {
    const auto* row = std::ranges::find(kRefusals, outcome.kind, &Refusal::verdict);
    api::Problem problem;
    if (row->text == nullptr) {
        problem = problem_of_violations(request, outcome, *row);
    } else {
        problem.code = row->code;
        problem.detail = row->text;
        boost::algorithm::replace_all(problem.detail, "{id}", request.path_parameter("id"));
        boost::algorithm::replace_all(problem.detail, "{state}", api::said_of(outcome.job.state));
        problem.param = row->param;
        problem.instance = request.path;
    }
    problem.status = row->status;
    api::Headers headers;
    if (row->retry_after_seconds != nullptr) {
        headers.emplace_back("Retry-After", row->retry_after_seconds);
    }
    return api::to_response(problem, std::move(headers));
}

api::Response verb_answer(const api::Request& request, const JobOutcome& outcome, unsigned status) {
    if (outcome.kind != JobVerdict::accepted) {
        return refusal(request, outcome);
    }
    return json_response(status, api::to_json_object(outcome.job, true));
}

}  // namespace distilld

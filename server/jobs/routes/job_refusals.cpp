#include "server/jobs/routes/job_refusals.hpp"

#include <algorithm>
#include <array>
#include <boost/algorithm/string/replace.hpp>
#include <optional>
#include <string>
#include <utility>

#include "api/problem.hpp"
#include "server/jobs/routes/api_route.hpp"

namespace distilld {
namespace {

/// A text may contain {id} and {state}; without a text the violations say what is wrong.
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
    Refusal{JobVerdict::tasks_not_terminal, 409, "job_is_not_terminal",
            "job '{id}' has a task that has not ended: wait for it, or cancel it first"},
    Refusal{JobVerdict::cancelling, 409, "job_is_cancelling",
            "job '{id}' is about to be cancelled: resume it after that"},
    Refusal{JobVerdict::not_running, 409, "job_is_not_running", "job '{id}' is not running: it {state}"},
    Refusal{JobVerdict::no_checkpoints, 409, "job_has_no_checkpoints",
            "job '{id}' is of kind generate, which has no checkpoints: what it has written is kept"},
    Refusal{JobVerdict::no_remote_teacher, 409, "job_has_no_remote_teacher",
            "job '{id}' has no teacher endpoints, so max_concurrent has no effect", "/max_concurrent"},
    Refusal{JobVerdict::invalid_change, 400, "invalid_job_change"},
    Refusal{JobVerdict::invalid_spec, 400, "invalid_job_spec"},
    Refusal{JobVerdict::not_yours, 400, "invalid_job_spec"},
    Refusal{JobVerdict::not_runnable, 409, "job_is_not_runnable"},
    Refusal{JobVerdict::output_in_use, 409, "output_in_use"},
    Refusal{JobVerdict::key_reused, 422, "idempotency_key_reused", "the Idempotency-Key was used with another body",
            "idempotency-key"},
    Refusal{JobVerdict::queue_full, 429, "queue_full",
            "the queue is full (--max-queued); submit the job again when some jobs have started", "", "30"},
    Refusal{JobVerdict::nodes_unavailable, 503, "nodes_unavailable",
            "the cluster does not say which nodes are idle, so tasks cannot be auto: give a number, or try again",
            "/tasks", "10"},
    Refusal{JobVerdict::stopping, 503, "stopping", "the service is stopping and accepts no jobs", "", "10"},
};

api::Problem problem_of_violations(const http::Request& request, const JobOutcome& outcome, const Refusal& row) {
    api::Problem problem = api::spec_problem(outcome.violations, request.path);
    problem.code = row.code;
    if (row.status != 400 || outcome.kind == JobVerdict::invalid_change) {
        problem.title.clear();
        return problem;
    }
    const auto& all = outcome.violations.violations;
    if (!all.empty() && all.front().code.ends_with("_not_allowed")) {
        problem.code = all.front().code;
    }
    return problem;
}

const Refusal& row_of(JobVerdict verdict) {
    return *std::ranges::find(kRefusals, verdict, &Refusal::verdict);
}

api::Problem problem_of(const http::Request& request, const JobOutcome& outcome) {
    const Refusal& row = row_of(outcome.kind);
    api::Problem problem;
    if (row.text == nullptr) {
        problem = problem_of_violations(request, outcome, row);
    } else {
        problem.code = row.code;
        problem.detail = row.text;
        boost::algorithm::replace_all(problem.detail, "{id}", request.path_parameter("id"));
        boost::algorithm::replace_all(problem.detail, "{state}", api::said_of(outcome.job.state));
        problem.param = row.param;
        problem.instance = request.path;
    }
    problem.status = row.status;
    return problem;
}

}  // namespace

http::Response refusal(const http::Request& request, const JobOutcome& outcome) {
    http::Headers headers;
    if (const char* seconds = row_of(outcome.kind).retry_after_seconds) {
        headers.emplace_back("Retry-After", seconds);
    }
    return http::to_response(problem_of(request, outcome), std::move(headers));
}

void job_not_found(const http::Request& request) {
    throw ProblemError{problem_of(request, {JobVerdict::not_found})};
}

boost::asio::awaitable<api::Job> job_of(JobManager& manager, const http::Request& request) {
    std::optional<api::Job> job = co_await manager.get(std::string(request.path_parameter("id")));
    if (!job) {
        job_not_found(request);
    }
    co_return *std::move(job);
}

http::Response verb_answer(const http::Request& request, const JobOutcome& outcome, unsigned status) {
    if (outcome.kind != JobVerdict::accepted) {
        return refusal(request, outcome);
    }
    return json_response(status, api::to_json_object(outcome.job, true));
}

}  // namespace distilld

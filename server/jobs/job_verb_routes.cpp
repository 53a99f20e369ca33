#include "server/jobs/job_verb_routes.hpp"

#include <memory>
#include <string>
#include <utility>

#include "server/jobs/api_route.hpp"
#include "server/jobs/job_patch.hpp"
#include "server/jobs/query_reader.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using api::Request;
using api::Response;
using Kind = VerbOutcome::Kind;

/// A problem with the violations, by the name of the whole.
[[noreturn]] void refuse_with(const Request& request, const VerbOutcome& outcome, unsigned status, const char* code) {
    auto problem = api::spec_problem(outcome.violations, request.path);
    problem.status = status;
    problem.title.clear();
    problem.code = code;
    throw ProblemError{std::move(problem)};
}

class VerbApi {
  public:
    explicit VerbApi(JobManager& manager) : manager_(manager) {}

    asio::awaitable<Response> cancel(Request request) {
        QueryReader query(request, {"checkpoint"});
        const auto last = query.flag("checkpoint", true) ? LastCheckpoint::write : LastCheckpoint::skip;
        query.finish();
        const VerbOutcome outcome = co_await manager_.cancel(std::string(request.path_parameter("id")), last);
        co_return verb_answer(request, outcome, 202);
    }

    asio::awaitable<Response> pause(Request request) { return verb<&JobManager::pause>(std::move(request)); }
    asio::awaitable<Response> resume(Request request) { return verb<&JobManager::resume>(std::move(request)); }
    asio::awaitable<Response> checkpoint(Request request) { return verb<&JobManager::checkpoint>(std::move(request)); }

    asio::awaitable<Response> change(Request request) {
        check_query(request, {});
        auto patch = parse_job_patch(request.body);
        if (!patch) {
            refuse_with(request, {Kind::invalid, {}, patch.error()}, 400, "invalid_job_change");
        }
        const VerbOutcome outcome =
            co_await manager_.change(std::string(request.path_parameter("id")), *std::move(patch));
        co_return verb_answer(request, outcome, 200);
    }

  private:
    template <asio::awaitable<VerbOutcome> (JobManager::*kVerb)(std::string)>
    asio::awaitable<Response> verb(Request request) {
        check_query(request, {});
        const VerbOutcome outcome = co_await (manager_.*kVerb)(std::string(request.path_parameter("id")));
        co_return verb_answer(request, outcome, 202);
    }

    JobManager& manager_;
};

}  // namespace

Response verb_answer(const Request& request, const VerbOutcome& outcome, unsigned status) {
    const std::string id(request.path_parameter("id"));
    const std::string state = api::said_of(outcome.job.state);
    switch (outcome.kind) {
        case Kind::accepted:
            break;
        case Kind::not_found:
            job_not_found(request, id);
        case Kind::terminal:
            refuse(request, 409, "job_is_terminal", "job '" + id + "' " + state);
        case Kind::cancelling:
            refuse(request, 409, "job_is_cancelling",
                   "job '" + id + "' is about to be cancelled: it can be resumed when it is");
        case Kind::not_running:
            refuse(request, 409, "job_is_not_running", "job '" + id + "' is not running: it " + state);
        case Kind::no_checkpoints:
            refuse(request, 409, "job_has_no_checkpoints",
                   "job '" + id + "' is of kind generate, which has no checkpoints: what it has written is kept");
        case Kind::no_remote_teacher:
            refuse(
                request, 409, "job_has_no_remote_teacher",
                "job '" + id + "' asks no teacher's endpoints: there are no requests that max_concurrent could limit",
                "/max_concurrent");
        case Kind::invalid:
            refuse_with(request, outcome, 400, "invalid_job_change");
        case Kind::not_runnable:
            refuse_with(request, outcome, 409, "job_is_not_runnable");
        case Kind::output_in_use:
            refuse_with(request, outcome, 409, "output_in_use");
        case Kind::stopping:
            return unavailable(request.path, "stopping", "the service is stopping and takes no jobs");
    }
    return json_response(status, api::to_json_object(outcome.job, true));
}

std::vector<http::Route> make_job_verb_routes(JobManager& manager) {
    const auto api = std::make_shared<VerbApi>(manager);
    return {
        api_route(api, "POST", "/v1/jobs/{id}/cancel", &VerbApi::cancel),
        api_route(api, "POST", "/v1/jobs/{id}/pause", &VerbApi::pause),
        api_route(api, "POST", "/v1/jobs/{id}/resume", &VerbApi::resume),
        api_route(api, "POST", "/v1/jobs/{id}/checkpoint", &VerbApi::checkpoint),
        api_route(api, "PATCH", "/v1/jobs/{id}", &VerbApi::change),
    };
}

}  // namespace distilld

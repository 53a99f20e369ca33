#include "server/jobs/job_verb_routes.hpp"

#include <memory>
#include <string>
#include <utility>

#include "server/jobs/api_route.hpp"
#include "server/jobs/job_patch.hpp"
#include "server/jobs/job_refusals.hpp"
#include "server/jobs/query_reader.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using api::Request;
using api::Response;

class VerbApi {
  public:
    explicit VerbApi(JobManager& manager) : manager_(manager) {}

    asio::awaitable<Response> cancel(Request request) {
        QueryReader query(request, {"checkpoint"});
        const auto last = query.flag("checkpoint", true) ? LastCheckpoint::write : LastCheckpoint::skip;
        query.finish();
        const JobOutcome outcome = co_await manager_.cancel(std::string(request.path_parameter("id")), last);
        co_return verb_answer(request, outcome, 202);
    }

    asio::awaitable<Response> pause(Request request) { return verb<&JobManager::pause>(std::move(request)); }
    asio::awaitable<Response> resume(Request request) { return verb<&JobManager::resume>(std::move(request)); }
    asio::awaitable<Response> checkpoint(Request request) { return verb<&JobManager::checkpoint>(std::move(request)); }

    asio::awaitable<Response> change(Request request) {
        check_query(request, {});
        auto patch = parse_job_patch(request.body);
        if (!patch) {
            co_return refusal(request, {JobVerdict::invalid_change, {}, patch.error()});
        }
        const JobOutcome outcome =
            co_await manager_.change(std::string(request.path_parameter("id")), *std::move(patch));
        co_return verb_answer(request, outcome, 200);
    }

  private:
    template <asio::awaitable<JobOutcome> (JobManager::*kVerb)(std::string)>
    asio::awaitable<Response> verb(Request request) {
        check_query(request, {});
        const JobOutcome outcome = co_await (manager_.*kVerb)(std::string(request.path_parameter("id")));
        co_return verb_answer(request, outcome, 202);
    }

    JobManager& manager_;
};

}  // namespace

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

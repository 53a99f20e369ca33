#include "server/jobs/routes/job_verb_routes.hpp"

#include <string>
#include <utility>

#include "server/jobs/job_patch.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/job_refusals.hpp"
#include "server/jobs/routes/query_reader.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using http::Request;
using http::Response;

asio::awaitable<Response> ask(JobManager& manager, JobVerb verb, Request request) {
    bool option = true;
    if (verb.option != nullptr) {
        QueryReader query(request, {verb.option});
        option = query.flag(verb.option, true);
        query.finish();
    } else {
        check_query(request, {});
    }
    const JobOutcome outcome = co_await manager.command(std::string(request.path_parameter("id")), verb, option);
    co_return verb_answer(request, outcome, 202);
}

asio::awaitable<Response> change(JobManager& manager, Request request) {
    check_query(request, {});
    auto patch = parse_job_patch(request.body);
    if (!patch) {
        co_return refusal(request, {JobVerdict::invalid_change, {}, patch.error()});
    }
    const JobOutcome outcome = co_await manager.change(std::string(request.path_parameter("id")), *std::move(patch));
    co_return verb_answer(request, outcome, 200);
}

}  // namespace

std::vector<http::Route> make_job_verb_routes(JobManager& manager, std::span<const JobVerb> verbs) {
    std::vector<http::Route> routes;
    for (const JobVerb& verb : verbs) {
        const std::string pattern = "/v1/jobs/{id}/" + std::string(verb.name);
        routes.push_back(api_route("POST", pattern.c_str(), [&manager, verb](Request request) {
            return ask(manager, verb, std::move(request));
        }));
    }
    routes.push_back(api_route("PATCH", "/v1/jobs/{id}",
                               [&manager](Request request) { return change(manager, std::move(request)); }));
    return routes;
}

}  // namespace distilld

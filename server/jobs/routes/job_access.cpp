#include "server/jobs/routes/job_access.hpp"

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>

#include "api/url_queries.hpp"
#include "base/json_text.hpp"
#include "server/jobs/routes/api_route.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using http::Request;
using http::Response;
using http::Role;

constexpr std::size_t kStoredDepth = 64;

bool is_about_a_job(const http::Route& route) {
    return route.method != "GET" &&
           (route.pattern.starts_with("/v1/jobs/{id}") || route.pattern.starts_with("/v1/fine_tuning/jobs/{id}"));
}

asio::awaitable<Response> guarded(JobManager& manager, std::shared_ptr<const http::Handler> handler, Request request) {
    if (request.caller && request.caller->role != Role::admin) {
        const auto job = co_await manager.get(std::string(request.path_parameter("id")));
        if (job && !may_act_on(job->owner_id, request)) {
            const std::string whose = job->owner.empty() ? "nobody's" : "of the key '" + job->owner + "'";
            refuse(request, 403, "not_your_job",
                   "job '" + job->id + "' is " + whose +
                       ": a key of role submit may change only its own jobs, a key of role admin all");
        }
    }
    co_return co_await (*handler)(std::move(request));
}

/// For a stored spec. A spec that is not JSON cannot be searched, so it is not shown.
std::string without_queries(const std::string& spec) {
    auto value = parse_json_text(spec, kStoredDepth);
    if (!value) {
        return {};
    }
    api::hide_url_queries(*value);
    return to_text(*value);
}

}  // namespace

bool may_act_on(const std::string& owner_id, const Request& request) {
    return is_for_all(request) || (!owner_id.empty() && request.caller->id == owner_id);
}

bool is_for_all(const Request& request) {
    return !request.caller || request.caller->role == Role::admin;
}

void guard_jobs_of_others(std::vector<http::Route>& routes, JobManager& manager) {
    for (http::Route& route : routes) {
        if (!is_about_a_job(route)) {
            continue;
        }
        const auto inner = std::make_shared<const http::Handler>(std::move(route.handler));
        const auto guard = [&manager, inner](Request request) { return guarded(manager, inner, std::move(request)); };
        route.handler =
            api_route(route.method.c_str(), route.pattern.c_str(), guard).handler;  // answers what it refuses
    }
}

api::Job visible_job(api::Job job, const Request& request) {
    if (!may_act_on(job.owner_id, request)) {
        for (std::string* spec : {&job.spec_json, &job.resolved_spec_json, &job.asked_json}) {
            if (!spec->empty()) {
                *spec = without_queries(*spec);
            }
        }
    }
    return job;
}

std::string scoped_idempotency_key(std::string key, const Request& request) {
    // A key's id has no line feed, and neither has a header.
    return key.empty() || !request.caller ? std::move(key) : request.caller->id + "\n" + std::move(key);
}

}  // namespace distilld

#include "server/jobs/routes/job_routes.hpp"

#include <boost/algorithm/string/join.hpp>
#include <boost/json/array.hpp>

#include "api/openapi.hpp"
#include "api/problem.hpp"
#include "base/json_text.hpp"
#include "base/random_hex.hpp"
#include "distilld_version.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/artifact_routes.hpp"
#include "server/jobs/routes/history_routes.hpp"
#include "server/jobs/routes/job_access.hpp"
#include "server/jobs/routes/job_estimator.hpp"
#include "server/jobs/routes/job_refusals.hpp"
#include "server/jobs/routes/job_requests.hpp"
#include "server/jobs/routes/job_verb_routes.hpp"
#include "server/jobs/routes/log_routes.hpp"
#include "server/jobs/routes/metrics_routes.hpp"
#include "server/jobs/routes/node_routes.hpp"
#include "server/jobs/routes/page_routes.hpp"
#include "server/jobs/routes/query_reader.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using http::Request;
using http::Response;

constexpr std::uint32_t kListDefault = 20;
constexpr std::uint32_t kListMax = 100;

class JobApi {
  public:
    JobApi(JobManager& manager, std::shared_ptr<JobLogs> logs, Estimates estimates)
        : manager_(manager), logs_(std::move(logs)), estimates_(std::move(estimates)) {}

    asio::awaitable<Response> submit(Request request) {
        SubmitRequest order;
        QueryReader query(request, {"dry_run", "priority"});
        order.dry_run = query.flag("dry_run", false);
        order.priority = query.number<std::int32_t>("priority", api::kLowestPriority, api::kHighestPriority)
                             .value_or(order.priority);
        query.finish();
        order.idempotency_key = idempotency_key_of(request);
        order.owner = request.caller;
        order.is_admin = is_for_all(request);
        order.spec_json = std::move(request.body);
        const auto outcome = co_await manager_.submit(std::move(order));
        if (outcome.kind == JobVerdict::valid) {
            auto estimate = co_await estimate_of(manager_, estimates_, outcome);
            JobOutcome refused = outcome;
            refused.violations.violations = take_violations(estimate);
            if (!refused.violations.violations.empty()) {
                refused.kind = JobVerdict::invalid_spec;
                co_return submit_response(request, refused);
            }
            co_return validation_response(outcome.job, std::move(estimate));
        }
        co_return submit_response(request, outcome);
    }

    asio::awaitable<Response> list(Request request) {
        JobQuery query;
        QueryReader reader(request, {"limit", "after", "state", "name", "id_prefix", "metadata[]"});
        query.metadata = metadata_filter_of(request, reader);
        query.limit = reader.limit(kListDefault, kListMax);
        query.after = reader.value("after").value_or("");
        if (const auto text = reader.value("state")) {
            query.state = enum_from_string<api::JobState>(*text);
            if (!query.state) {
                reader.wrong("state", "state must be one of " +
                                          boost::algorithm::join(names_of(kEnumNames<api::JobState>), ", "));
            }
        }
        query.name = reader.value("name").value_or("");
        if (reader.has("name") && query.name.empty()) {
            reader.wrong("name", "name must not be empty");
        }
        query.id_prefix = reader.value("id_prefix").value_or("");
        reader.finish();
        const auto listing = co_await manager_.list(query);
        if (listing.unknown_after) {
            refuse(request, 400, "invalid_parameter", "after is not the id of a job: '" + query.after + "'", "after");
        }
        json::array data;
        for (const auto& job : listing.jobs) {
            data.push_back(api::to_json_object(job, false));
        }
        json::object body{{"object", "list"}, {"data", std::move(data)}, {"has_more", listing.has_more}};
        body["first_id"] = nullptr;
        body["last_id"] = nullptr;
        if (!listing.jobs.empty()) {
            body["first_id"] = listing.jobs.front().id;
            body["last_id"] = listing.jobs.back().id;
        }
        co_return json_response(200, body);
    }

    asio::awaitable<Response> get(Request request) {
        check_query(request, {});
        // Before reading the job: a change in between makes the answer newer than its tag, never older.
        const JobVersion version = manager_.version_of(std::string(request.path_parameter("id")));
        const std::string tag = tag_of(version, request);
        Response response;
        if (request.header("if-none-match").value_or("").find(tag) != std::string_view::npos) {
            response.status = 304;
        } else {
            const api::Job job = co_await job_of(manager_, request);
            response = json_response(200, api::to_json_object(visible_job(job, request), true));
            // No number tells whether a place was left and taken again: the tag is that of the shown place.
            if (job.queue_position.value_or(0) != version.queue_position) {
                co_return response;
            }
        }
        response.headers = {{"ETag", tag}, {"Cache-Control", "private, no-cache"}};
        co_return response;
    }

    asio::awaitable<Response> remove(Request request) {
        check_query(request, {});
        const std::string id(request.path_parameter("id"));
        const auto outcome = co_await manager_.remove(id);
        if (outcome.kind != JobVerdict::accepted) {
            co_return refusal(request, outcome);
        }
        for (const auto& removed : outcome.job.tasks) {
            co_await logs_->remove(removed);
        }
        const json::object body{{"id", id}, {"object", "job"}, {"deleted", true}};
        co_return json_response(200, body);
    }

    asio::awaitable<Response> ready(Request request) {
        const bool ready = co_await manager_.ready();
        if (!ready) {
            refuse(request, 503, "not_ready", "the service is starting or stopping");
        }
        if (const auto trouble = manager_.store_trouble()) {
            co_return unavailable(request.path, trouble->code, trouble->message + " (since " + trouble->since + ")");
        }
        const json::object body{{"status", "ready"}};
        co_return json_response(200, body);
    }

    asio::awaitable<Response> version(Request) {
        const json::object body{{"version", kVersion}, {"build_type", kBuildType}, {"compiler", kCompiler}};
        co_return json_response(200, body);
    }

    asio::awaitable<Response> openapi(Request) {
        Response response;
        response.content_type = "application/yaml";
        response.body = api::openapi_yaml();
        co_return response;
    }

  private:
    /// Moves the violations out of an estimate.
    static std::vector<api::Violation> take_violations(json::object& estimate) {
        std::vector<api::Violation> found;
        const auto text_of = [](const json::object& one, const char* name) {
            const auto* value = one.if_contains(name);
            return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
        };
        const auto* member = estimate.if_contains("violations");
        const auto* violations = member == nullptr ? nullptr : member->if_array();
        for (const auto& one : violations == nullptr ? json::array() : *violations) {
            if (const auto* object = one.if_object()) {
                found.push_back({text_of(*object, "pointer"), text_of(*object, "code"), text_of(*object, "detail")});
            }
        }
        estimate.erase("violations");
        return found;
    }

    static Response validation_response(const api::Job& job, json::object estimate) {
        auto body = api::to_json_object(job, true);
        return json_response(200, {{"object", "job.validation"},
                                   {"valid", true},
                                   {"resolved_spec", std::move(body["resolved_spec"])},
                                   {"estimate", std::move(estimate)}});
    }

    static Response submit_response(const Request& request, const JobOutcome& outcome) {
        if (outcome.kind != JobVerdict::created && outcome.kind != JobVerdict::existing) {
            return refusal(request, outcome);
        }
        const unsigned status = outcome.kind == JobVerdict::created ? 201 : 200;
        auto response = json_response(status, api::to_json_object(outcome.job, true));
        response.headers.emplace_back("Location", "/v1/jobs/" + outcome.job.id);
        return response;
    }

    /// Equal for the same version of a job, seen by the same caller.
    [[nodiscard]] std::string tag_of(const JobVersion& version, const Request& request) const {
        return '"' + process_ + "-" + std::to_string(version.change) + "-" + std::to_string(version.queue_position) +
               (request.caller ? "-" + request.caller->id : "") + '"';
    }

    JobManager& manager_;
    std::shared_ptr<JobLogs> logs_;
    /// The numbers of changes restart with the process.
    const std::string process_ = random_hex(2);
    const Estimates estimates_;
};

}  // namespace

std::vector<http::Route> make_job_routes(JobManager& manager, std::shared_ptr<JobMetrics> metrics,
                                         std::shared_ptr<JobLogs> logs, Estimates estimates, SpecPolicy policy) {
    const auto api = std::make_shared<JobApi>(manager, logs, std::move(estimates));
    std::vector<http::Route> routes{
        api_route(api, "POST", "/v1/jobs", &JobApi::submit),
        api_route(api, "GET", "/v1/jobs", &JobApi::list, Access::vital),
        api_route(api, "GET", "/v1/jobs/{id}", &JobApi::get, Access::vital),
        api_route(api, "DELETE", "/v1/jobs/{id}", &JobApi::remove),
        api_route(api, "GET", "/readyz", &JobApi::ready, Access::anybody),
        api_route(api, "GET", "/version", &JobApi::version),
        api_route(api, "GET", "/openapi.yaml", &JobApi::openapi),
    };
    add_routes(routes, make_job_verb_routes(manager));
    add_routes(routes, make_history_routes(manager));
    add_routes(routes, make_artifact_routes(manager, std::move(policy)));
    add_routes(routes, make_log_routes(manager, std::move(logs)));
    add_routes(routes, make_node_routes(manager));
    add_routes(routes, make_page_routes(api::built_in_page()));
    add_routes(routes, make_metrics_routes(std::move(metrics)));
    guard_jobs_of_others(routes, manager);
    return routes;
}

}  // namespace distilld

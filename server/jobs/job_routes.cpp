#include "server/jobs/job_routes.hpp"

#include <boost/json/array.hpp>

#include "api/openapi.hpp"
#include "api/problem.hpp"
#include "base/json_text.hpp"
#include "distilld_version.hpp"
#include "server/jobs/api_route.hpp"
#include "server/jobs/history_routes.hpp"
#include "server/jobs/log_routes.hpp"
#include "server/jobs/metrics_routes.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using api::Request;
using api::Response;

constexpr std::uint32_t kListDefault = 20;
constexpr std::uint32_t kListMax = 100;
constexpr std::size_t kKeyLimit = 255;
constexpr const char* kQueueRetrySeconds = "30";

std::string idempotency_key_of(const Request& request) {
    auto header = request.header("idempotency-key");
    if (!header) {
        header = request.header("x-idempotency-key");
    }
    if (!header) {
        return {};
    }
    if (header->empty() || header->size() > kKeyLimit) {
        refuse(request, 400, "invalid_parameter", "Idempotency-Key must have 1 to 255 bytes", "idempotency-key");
    }
    return std::string(*header);
}

class JobApi {
  public:
    JobApi(JobManager& manager, std::shared_ptr<JobLogs> logs) : manager_(manager), logs_(std::move(logs)) {}

    asio::awaitable<Response> submit(Request request) {
        check_query(request, {"dry_run"});
        SubmitRequest order;
        order.dry_run = flag_of(request, "dry_run");
        order.idempotency_key = idempotency_key_of(request);
        order.spec_json = std::move(request.body);
        const auto outcome = co_await manager_.submit(std::move(order));
        co_return submit_response(request, outcome);
    }

    asio::awaitable<Response> list(Request request) {
        check_query(request, {"limit", "after", "state", "name"});
        JobQuery query;
        query.limit = limit_of(request, kListDefault, kListMax);
        if (const auto after = request.query_value("after")) {
            query.after = *after;
        }
        if (const auto text = request.query_value("state")) {
            query.state = api::job_state_from_string(*text);
            if (!query.state) {
                refuse(request, 400, "invalid_parameter",
                       "state must be queued, running, succeeded, failed or cancelled", "state");
            }
        }
        if (const auto name = request.query_value("name")) {
            if (name->empty()) {
                refuse(request, 400, "invalid_parameter", "name must not be empty", "name");
            }
            query.name = *name;
        }
        const auto listing = co_await manager_.list(query);
        if (listing.unknown_after) {
            refuse(request, 400, "invalid_parameter", "after names no job: '" + query.after + "'", "after");
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
        auto asking = job_of(manager_, request);
        const api::Job job = co_await std::move(asking);
        co_return json_response(200, api::to_json_object(job, true));
    }

    asio::awaitable<Response> cancel(Request request) {
        check_query(request, {});
        const std::string id(request.path_parameter("id"));
        const auto outcome = co_await manager_.cancel(id);
        if (outcome.kind == CancelOutcome::Kind::not_found) {
            job_not_found(request, id);
        }
        if (outcome.kind == CancelOutcome::Kind::terminal) {
            refuse(request, 409, "job_is_terminal",
                   "job '" + id + "' has ended: it is " + api::to_string(outcome.job.state));
        }
        co_return json_response(202, api::to_json_object(outcome.job, true));
    }

    asio::awaitable<Response> remove(Request request) {
        check_query(request, {});
        const std::string id(request.path_parameter("id"));
        const auto outcome = co_await manager_.remove(id);
        if (outcome.kind == RemoveOutcome::Kind::not_found) {
            job_not_found(request, id);
        }
        if (outcome.kind == RemoveOutcome::Kind::not_ended) {
            refuse(request, 409, "job_is_not_terminal",
                   "job '" + id + "' has not ended: it is " + api::to_string(outcome.state) + "; cancel it first");
        }
        auto removal = logs_->remove(id);
        co_await std::move(removal);
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
    static Response queue_full(const Request& request) {
        api::Problem problem;
        problem.status = 429;
        problem.code = "queue_full";
        problem.detail = "as many jobs wait as the service takes (--max-queued); submit it again when some have begun";
        problem.instance = request.path;
        return api::to_response(problem, {{"Retry-After", kQueueRetrySeconds}});
    }

    static Response submit_response(const Request& request, const SubmitOutcome& outcome) {
        switch (outcome.kind) {
            case SubmitOutcome::Kind::created:
            case SubmitOutcome::Kind::existing: {
                const bool created = outcome.kind == SubmitOutcome::Kind::created;
                auto response = json_response(created ? 201 : 200, api::to_json_object(outcome.job, true));
                response.headers.emplace_back("Location", "/v1/jobs/" + outcome.job.id);
                return response;
            }
            case SubmitOutcome::Kind::valid: {
                auto body = api::to_json_object(outcome.job, true);
                return json_response(200, {{"object", "job.validation"},
                                           {"valid", true},
                                           {"resolved_spec", std::move(body["resolved_spec"])}});
            }
            case SubmitOutcome::Kind::invalid:
                return api::to_response(api::spec_problem(outcome.violations, request.path));
            case SubmitOutcome::Kind::conflict: {
                auto problem = api::spec_problem(outcome.violations, request.path);
                problem.status = 409;
                problem.title.clear();
                problem.code = "output_in_use";
                return api::to_response(problem);
            }
            case SubmitOutcome::Kind::key_reused:
                refuse(request, 422, "idempotency_key_reused", "the Idempotency-Key was used with another body",
                       "idempotency-key");
            case SubmitOutcome::Kind::queue_full:
                return queue_full(request);
            case SubmitOutcome::Kind::stopping:
                break;
        }
        return unavailable(request.path, "stopping", "the service is stopping and takes no jobs");
    }

    JobManager& manager_;
    std::shared_ptr<JobLogs> logs_;
};

}  // namespace

std::vector<http::Route> make_job_routes(JobManager& manager, std::shared_ptr<JobMetrics> metrics,
                                         std::shared_ptr<JobLogs> logs) {
    const auto api = std::make_shared<JobApi>(manager, logs);
    std::vector<http::Route> routes{
        api_route(api, "POST", "/v1/jobs", &JobApi::submit),
        api_route(api, "GET", "/v1/jobs", &JobApi::list, Access::vital),
        api_route(api, "GET", "/v1/jobs/{id}", &JobApi::get, Access::vital),
        api_route(api, "POST", "/v1/jobs/{id}/cancel", &JobApi::cancel),
        api_route(api, "DELETE", "/v1/jobs/{id}", &JobApi::remove),
        api_route(api, "GET", "/readyz", &JobApi::ready, Access::anybody),
        api_route(api, "GET", "/version", &JobApi::version),
        api_route(api, "GET", "/openapi.yaml", &JobApi::openapi),
    };
    for (auto& row : make_history_routes(manager)) {
        routes.push_back(std::move(row));
    }
    for (auto& row : make_log_routes(manager, std::move(logs))) {
        routes.push_back(std::move(row));
    }
    for (auto& shared : make_metrics_routes(std::move(metrics))) {
        routes.push_back(std::move(shared));
    }
    return routes;
}

}  // namespace distilld

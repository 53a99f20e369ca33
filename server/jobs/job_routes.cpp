#include "server/jobs/job_routes.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <charconv>
#include <initializer_list>
#include <limits>

#include "api/openapi.hpp"
#include "api/problem.hpp"
#include "base/json_text.hpp"
#include "distilld_version.hpp"
#include "server/jobs/event_stream.hpp"
#include "server/jobs/metrics_routes.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using api::Problem;
using api::Request;
using api::Response;

constexpr std::uint32_t kListDefault = 20;
constexpr std::uint32_t kListMax = 100;
constexpr std::uint32_t kEventsDefault = 100;
constexpr std::uint32_t kEventsMax = 1000;
constexpr std::size_t kKeyLimit = 255;

/// Thrown by the readers of parameters, turned into the answer in answer_of().
struct ProblemError {
    Problem problem;
};

[[noreturn]] void refuse(const Request& request, unsigned status, std::string code, std::string detail,
                         std::string param = {}) {
    Problem problem;
    problem.status = status;
    problem.code = std::move(code);
    problem.detail = std::move(detail);
    problem.param = std::move(param);
    problem.instance = request.path;
    throw ProblemError{std::move(problem)};
}

Response json_response(unsigned status, const json::object& body) {
    Response response;
    response.status = status;
    response.body = to_text(body);
    return response;
}

/// Refuses query parameters that are unknown or stand twice: ignoring one in silence hides a mistake.
void check_query(const Request& request, std::initializer_list<std::string_view> known) {
    for (auto entry = request.query.begin(); entry != request.query.end(); ++entry) {
        const auto& name = entry->first;
        if (std::find(known.begin(), known.end(), name) == known.end()) {
            refuse(request, 400, "unknown_parameter", "unknown query parameter '" + name + "'", name);
        }
        const bool twice =
            std::any_of(request.query.begin(), entry, [&](const auto& other) { return other.first == name; });
        if (twice) {
            refuse(request, 400, "duplicate_parameter", "query parameter '" + name + "' is given twice", name);
        }
    }
}

std::uint64_t whole_number(const Request& request, std::string_view text, const char* name, std::uint64_t min,
                           std::uint64_t max) {
    std::uint64_t value = 0;
    const auto* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (text.empty() || stop != end || error != std::errc() || value < min || value > max) {
        refuse(request, 400, "invalid_parameter",
               std::string(name) + " must be a whole number from " + std::to_string(min) + " to " + std::to_string(max),
               name);
    }
    return value;
}

std::uint32_t limit_of(const Request& request, std::uint32_t otherwise, std::uint32_t max) {
    const auto text = request.query_value("limit");
    return text ? static_cast<std::uint32_t>(whole_number(request, *text, "limit", 1, max)) : otherwise;
}

bool flag_of(const Request& request, const char* name) {
    const auto text = request.query_value(name);
    if (!text || *text == "false") {
        return false;
    }
    if (*text != "true") {
        refuse(request, 400, "invalid_parameter", std::string(name) + " must be true or false", name);
    }
    return true;
}

std::string lower(std::string_view text) {
    std::string result(text);
    for (auto& c : result) {
        if (c >= 'A' && c <= 'Z') {
            c = static_cast<char>(c - 'A' + 'a');
        }
    }
    return result;
}

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

bool wants_event_stream(const Request& request) {
    const auto accept = request.header("accept");
    return accept && lower(*accept).find("text/event-stream") != std::string::npos;
}

/// What passes by itself: the client may ask again.
Response unavailable(const std::string& path, std::string code, std::string detail) {
    Problem problem;
    problem.status = 503;
    problem.code = std::move(code);
    problem.detail = std::move(detail);
    problem.instance = path;
    return api::to_response(problem, {{"Retry-After", "10"}});
}

[[noreturn]] void job_not_found(const Request& request, const std::string& id) {
    refuse(request, 404, "job_not_found", "there is no job '" + id + "'", "id");
}

class JobApi {
  public:
    explicit JobApi(JobManager& manager) : manager_(manager) {}

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
        check_query(request, {"limit", "after", "state"});
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
        const std::string id(request.path_parameter("id"));
        const auto job = co_await manager_.get(id);
        if (!job) {
            job_not_found(request, id);
        }
        co_return json_response(200, api::to_json_object(*job, true));
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

    asio::awaitable<Response> events(Request request) {
        check_query(request, {"after", "limit"});
        constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
        const std::string id(request.path_parameter("id"));
        std::uint64_t after = 0;
        if (const auto text = request.query_value("after")) {
            after = whole_number(request, *text, "after", 0, kMax);
        }
        const auto limit = limit_of(request, kEventsDefault, kEventsMax);
        // A client that reconnects says how far it got; its URL still says where it began.
        if (const auto last = request.header("last-event-id"); last && !last->empty()) {
            after = whole_number(request, *last, "Last-Event-ID", 0, kMax);
        }
        if (wants_event_stream(request)) {
            const auto job = co_await manager_.get(id);
            if (!job) {
                job_not_found(request, id);
            }
            Response response;
            response.content_type = "text/event-stream";
            response.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}};
            response.stream = make_job_event_stream(manager_, id, after);
            co_return response;
        }
        const auto batch = co_await manager_.events(id, after, limit);
        if (!batch.found) {
            job_not_found(request, id);
        }
        json::array data;
        for (const auto& event : batch.events) {
            data.push_back(api::to_json_object(event));
        }
        const json::object body{{"object", "list"}, {"data", std::move(data)}, {"has_more", batch.has_more}};
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
            case SubmitOutcome::Kind::stopping:
                break;
        }
        return unavailable(request.path, "stopping", "the service is stopping and takes no jobs");
    }

    JobManager& manager_;
};

using Method = asio::awaitable<Response> (JobApi::*)(Request);

/// Runs a handler; what it refuses, or the store cannot do, becomes a problem.
asio::awaitable<Response> answer_of(std::shared_ptr<JobApi> api, Method method, Request request) {
    const std::string path = request.path;
    try {
        auto work = ((*api).*method)(std::move(request));
        co_return co_await std::move(work);
    } catch (const ProblemError& error) {
        co_return api::to_response(error.problem);
    } catch (const ErrorException& error) {
        log::error("http", path + ": " + error.what());
        co_return unavailable(path, "store_unavailable", "the job store cannot be used; the service's log says why");
    }
}

/// Who may ask, beside those that any route answers.
enum class Access { usual, vital, anybody };

http::Route route(const std::shared_ptr<JobApi>& api, const char* verb, const char* pattern, Method method,
                  Access access = Access::usual) {
    http::Route row{verb, pattern,
                    [api, method](Request request) { return answer_of(api, method, std::move(request)); }};
    row.json_body = true;
    row.vital = access != Access::usual;
    row.any_host = access == Access::anybody;
    return row;
}

}  // namespace

std::vector<http::Route> make_job_routes(JobManager& manager, std::shared_ptr<JobMetrics> metrics) {
    const auto api = std::make_shared<JobApi>(manager);
    std::vector<http::Route> routes{
        route(api, "POST", "/v1/jobs", &JobApi::submit),
        route(api, "GET", "/v1/jobs", &JobApi::list, Access::vital),
        route(api, "GET", "/v1/jobs/{id}", &JobApi::get, Access::vital),
        route(api, "POST", "/v1/jobs/{id}/cancel", &JobApi::cancel),
        route(api, "GET", "/v1/jobs/{id}/events", &JobApi::events),
        route(api, "GET", "/readyz", &JobApi::ready, Access::anybody),
        route(api, "GET", "/version", &JobApi::version),
        route(api, "GET", "/openapi.yaml", &JobApi::openapi),
    };
    for (auto& shared : make_metrics_routes(std::move(metrics))) {
        routes.push_back(std::move(shared));
    }
    return routes;
}

}  // namespace distilld

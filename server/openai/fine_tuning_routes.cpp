#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "api/problem.hpp"
#include "base/json_text.hpp"
#include "pipeline/async/run_on.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/event_stream.hpp"
#include "server/jobs/routes/job_access.hpp"
#include "server/jobs/routes/job_refusals.hpp"
#include "server/jobs/routes/job_requests.hpp"
#include "server/jobs/routes/query_reader.hpp"
#include "server/openai/exported_files.hpp"
#include "server/openai/fine_tuning_request.hpp"
#include "server/openai/openai_objects.hpp"
#include "server/openai/openai_routes.hpp"

namespace distilld::openai {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using http::Request;
using http::Response;

constexpr std::uint32_t kListDefault = 20;
constexpr std::uint32_t kJobsMax = 100;
constexpr std::uint32_t kEventsMax = 1000;
constexpr std::uint32_t kCheckpointsDefault = 10;
/// The losses of checkpoints are looked up in this many points of the run.
constexpr std::uint32_t kPoints = 10'000;

/// A job's events in the stream format of OpenAI's clients: `data:` with one event object each, and `data: [DONE]` at
/// the job's end.
EventWriter event_writer(const std::string& job_id) {
    return {[job_id](const api::JobEvent& event, std::uint64_t) {
                return "id: " + std::to_string(event.sequence) +
                       "\ndata: " + to_text(fine_tuning_event(job_id, event)) + "\n\n";
            },
            [](const api::Job&) { return std::string("data: [DONE]\n\n"); }};
}

/// OpenAI's clients expect the name of a member in `error.param`; deeper fields keep their pointer.
Response refused_request(const Request& request, const api::SpecViolations& violations, unsigned status) {
    auto problem = api::spec_problem(violations, request.path);
    problem.status = status;
    problem.title = status == 400 ? "The fine-tuning job is not valid" : "";
    problem.code = status == 400 ? "invalid_fine_tuning_job" : "output_in_use";
    if (problem.param.rfind('/') == 0) {
        problem.param.erase(0, 1);
    }
    return http::to_response(problem);
}

/// The newest value at or before the step.
std::optional<double> value_at(const std::vector<MetricSeries>& series, const std::string& name, std::uint64_t step) {
    std::optional<double> value;
    for (const auto& one : series) {
        if (one.name != name) {
            continue;
        }
        for (const auto& point : one.points) {
            if (point.step <= step && std::isfinite(point.value)) {
                value = point.value;
            }
        }
    }
    return value;
}

class FineTuningApi {
  public:
    explicit FineTuningApi(const OpenAiParts& parts) : parts_(parts) {}

    asio::awaitable<Response> create(Request request) {
        check_query(request, {});
        SubmitRequest order;
        order.idempotency_key = idempotency_key_of(request);
        const auto asked = parse_fine_tuning_request(request.body);
        if (!asked) {
            co_return refused_request(request, asked.error(), 400);
        }
        api::SpecViolations missing;
        const std::vector<std::pair<std::string, std::string>> files{{"/training_file", asked->training_file},
                                                                     {"/validation_file", asked->validation_file}};
        for (const auto& [member, id] : files) {
            const auto file = co_await parts_.files->get(id);
            // A file of another key is reported as missing.
            if (!id.empty() && (!file || !may_act_on(file->owner_id, request))) {
                missing.violations.push_back({member, "not_found", "there is no file '" + id + "'"});
            }
        }
        if (!missing.violations.empty()) {
            co_return refused_request(request, missing, 400);
        }
        order.id = make_job_id();
        const auto validation =
            asked->validation_file.empty() ? std::filesystem::path() : parts_.files->path_of(asked->validation_file);
        order.spec_json =
            spec_of(*asked, parts_.files->path_of(asked->training_file), validation, parts_.outputs / order.id);
        order.own_paths = {"/dataset/train", "/output"};
        if (!validation.empty()) {
            order.own_paths.emplace_back("/dataset/eval");
        }
        order.asked_json = request.body;
        order.owner = request.caller;
        order.is_admin = is_for_all(request);
        order.metadata = asked->metadata;
        auto outcome = co_await parts_.manager.submit(std::move(order));
        if (outcome.kind == JobVerdict::invalid_spec || outcome.kind == JobVerdict::not_yours) {
            co_return refused_request(request, in_terms_of(*asked, std::move(outcome.violations)), 400);
        }
        if (outcome.kind == JobVerdict::output_in_use) {
            co_return refused_request(request, in_terms_of(*asked, std::move(outcome.violations)), 409);
        }
        if (outcome.kind != JobVerdict::created && outcome.kind != JobVerdict::existing) {
            co_return refusal(request, outcome);
        }
        const auto body = co_await shown(request, outcome.job);
        auto response = json_response(200, body);
        response.headers.emplace_back("Location", "/v1/fine_tuning/jobs/" + outcome.job.id);
        co_return response;
    }

    asio::awaitable<Response> list(Request request) {
        JobQuery query;
        query.with_specs = true;
        QueryReader reader(request, {"after", "limit", "metadata[]"});
        query.metadata = metadata_filter_of(request, reader);
        query.limit = reader.limit(kListDefault, kJobsMax);
        query.after = reader.value("after").value_or("");
        reader.finish();
        const auto page = co_await parts_.manager.list(query);
        if (page.unknown_after) {
            refuse(request, 400, "invalid_parameter", "after is not the id of a job: '" + query.after + "'", "after");
        }
        json::array data;
        for (const auto& job : page.jobs) {
            auto body = co_await shown(request, job);
            data.push_back(std::move(body));
        }
        co_return json_response(200, list_object(std::move(data), page.has_more));
    }

    asio::awaitable<Response> get(Request request) {
        check_query(request, {});
        co_return co_await as_it_is(std::move(request));
    }

    asio::awaitable<Response> cancel(Request request) { return ask("cancel", std::move(request)); }
    asio::awaitable<Response> pause(Request request) { return ask("pause", std::move(request)); }
    asio::awaitable<Response> resume(Request request) { return ask("resume", std::move(request)); }

    asio::awaitable<Response> events(Request request) {
        const std::string id(request.path_parameter("id"));
        QueryReader query(request, {"after", "limit", "order", "stream"});
        const auto limit = query.limit(kListDefault, kEventsMax);
        const bool newest_first = query.newest_first(true);
        const auto after = after_of(query, id);
        const bool streams = query.flag("stream", false);
        query.finish();
        if (streams) {
            static_cast<void>(co_await job_of(parts_.manager, request));
            co_return event_stream(parts_.manager, id, after.value_or(0), event_writer(id));
        }
        constexpr auto kNewest = std::numeric_limits<std::uint64_t>::max();
        auto reading = newest_first ? parts_.manager.events_before(id, after.value_or(kNewest), limit)
                                    : parts_.manager.events(id, after.value_or(0), limit);
        const auto batch = co_await std::move(reading);
        if (!batch.found) {
            job_not_found(request);
        }
        json::array data;
        for (const auto& event : batch.events) {
            data.push_back(fine_tuning_event(id, event));
        }
        co_return json_response(200, list_object(std::move(data), batch.has_more));
    }

    asio::awaitable<Response> checkpoints(Request request) {
        QueryReader reader(request, {"after", "limit"});
        const auto limit = reader.limit(kCheckpointsDefault, kJobsMax);
        reader.finish();
        const auto job = co_await job_of(parts_.manager, request);
        SeriesQuery query{{"loss", "eval_loss"}, std::nullopt, kPoints};
        const auto measured = co_await parts_.manager.metrics(job.id, std::move(query));
        const auto series = measured.value_or(std::vector<MetricSeries>());
        const auto listed = co_await parts_.manager.checkpoints(job.id);
        auto newest_first = listed.value_or(std::vector<api::JobCheckpoint>());
        std::ranges::reverse(newest_first);
        auto next = newest_first.begin();
        if (const auto after = reader.value("after")) {
            next = std::ranges::find_if(newest_first,
                                        [&](const auto& one) { return checkpoint_id(job.id, one) == *after; });
            if (next == newest_first.end()) {
                refuse(request, 400, "invalid_parameter",
                       "after is not the id of a checkpoint: '" + std::string(*after) + "'", "after");
            }
            ++next;
        }
        json::array data;
        for (; next != newest_first.end() && data.size() < limit; ++next) {
            const CheckpointLosses losses{value_at(series, "loss", next->step),
                                          value_at(series, "eval_loss", next->step)};
            data.push_back(fine_tuning_checkpoint(job, *next, losses));
        }
        co_return json_response(200, list_object(std::move(data), next != newest_first.end()));
    }

  private:
    asio::awaitable<Response> ask(const char* verb, Request request) {
        check_query(request, {});
        const std::string id(request.path_parameter("id"));
        const JobOutcome outcome = co_await parts_.manager.command(id, job_verb(verb));
        if (outcome.kind != JobVerdict::accepted) {
            co_return refusal(request, outcome);
        }
        co_return co_await as_it_is(std::move(request));
    }

    asio::awaitable<Response> as_it_is(Request request) {
        const auto job = co_await job_of(parts_.manager, request);
        const auto body = co_await shown(request, job);
        co_return json_response(200, body);
    }

    /// `job` with its specs, as the caller may see it.
    asio::awaitable<json::object> shown(const Request& request, api::Job job) {
        job = visible_job(std::move(job), request);
        auto looking = run_on(parts_.files->disk(), [job] { return exported_files(job); });
        const auto results = co_await std::move(looking);
        co_return fine_tuning_job(job, results);
    }

    static std::optional<std::uint64_t> after_of(QueryReader& query, const std::string& id) {
        const auto after = query.value("after");
        if (!after) {
            return std::nullopt;
        }
        const auto sequence = sequence_of_event(id, *after);
        if (!sequence) {
            query.wrong("after", "after is not the id of an event of job '" + id + "': '" + std::string(*after) + "'");
        }
        return sequence;
    }

    const OpenAiParts parts_;
};

}  // namespace

std::vector<http::Route> make_fine_tuning_routes(const OpenAiParts& parts) {
    const auto api = std::make_shared<FineTuningApi>(parts);
    return {
        api_route(api, "POST", "/v1/fine_tuning/jobs", &FineTuningApi::create),
        api_route(api, "GET", "/v1/fine_tuning/jobs", &FineTuningApi::list),
        api_route(api, "GET", "/v1/fine_tuning/jobs/{id}", &FineTuningApi::get),
        api_route(api, "POST", "/v1/fine_tuning/jobs/{id}/cancel", &FineTuningApi::cancel),
        api_route(api, "POST", "/v1/fine_tuning/jobs/{id}/pause", &FineTuningApi::pause),
        api_route(api, "POST", "/v1/fine_tuning/jobs/{id}/resume", &FineTuningApi::resume),
        api_route(api, "GET", "/v1/fine_tuning/jobs/{id}/events", &FineTuningApi::events),
        api_route(api, "GET", "/v1/fine_tuning/jobs/{id}/checkpoints", &FineTuningApi::checkpoints),
    };
}

}  // namespace distilld::openai

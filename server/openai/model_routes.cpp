#include <algorithm>
#include <boost/json/array.hpp>
#include <memory>
#include <system_error>
#include <utility>

#include "pipeline/async/run_on.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/job_access.hpp"
#include "server/jobs/routes/query_reader.hpp"
#include "server/openai/exported_files.hpp"
#include "server/openai/openai_objects.hpp"
#include "server/openai/openai_routes.hpp"

namespace distilld::openai {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using http::Request;
using http::Response;

constexpr std::uint32_t kPage = 100;
/// OpenAI's list has no pages, so one answer holds at most this many models, the newest first.
constexpr std::size_t kModelsMax = 1000;

bool has_weights(const api::Job& job) {
    const auto files = exported_files(job);
    return std::ranges::any_of(files, [](const auto& file) { return file.name.ends_with(".safetensors"); });
}

class ModelApi {
  public:
    explicit ModelApi(const OpenAiParts& parts) : parts_(parts) {}

    asio::awaitable<Response> list(Request request) {
        check_query(request, {});
        json::array data;
        JobQuery query;
        query.limit = kPage;
        query.state = api::JobState::succeeded;
        query.with_specs = true;
        for (bool more = true; more && data.size() < kModelsMax;) {
            const auto page = co_await parts_.manager.list(query);
            for (const auto& job : page.jobs) {
                if (co_await is_there(job)) {
                    data.push_back(model_object(job));
                }
            }
            more = page.has_more && !page.jobs.empty();
            query.after = page.jobs.empty() ? std::string() : page.jobs.back().id;
        }
        const json::object body{{"object", "list"}, {"data", std::move(data)}};
        co_return json_response(200, body);
    }

    asio::awaitable<Response> get(Request request) {
        check_query(request, {});
        const auto job = co_await found(request);
        co_return json_response(200, model_object(job));
    }

    asio::awaitable<Response> remove(Request request) {
        check_query(request, {});
        const auto job = co_await found(request);
        if (!may_act_on(job.owner_id, request)) {
            refuse(request, 403, "not_your_job", "the model belongs to a job of another key", "model");
        }
        const std::filesystem::path folder = job.output;
        if (folder != parts_.outputs / job.id) {
            refuse(request, 409, "folder_of_the_user",
                   "the model lies in the folder that the job's spec named, " + job.output + ": remove it there",
                   "model");
        }
        auto removing = run_on(parts_.files->disk(), [folder] {
            std::error_code failed;
            std::filesystem::remove_all(folder, failed);
            if (failed) {
                throw ErrorException(io_error(folder.string() + ": " + failed.message()));
            }
        });
        co_await std::move(removing);
        const json::object body{{"id", model_name(job)}, {"object", "model"}, {"deleted", true}};
        co_return json_response(200, body);
    }

    asio::awaitable<Response> serve(Request request) {
        refuse(
            request, 404, "not_an_inference_server",
            "this service trains models and does not serve them: download the model with 'distilld jobs download ID', "
            "and serve its folder as docs/use-the-student.md says");
        co_return Response();
    }

  private:
    /// Whether the job's model exists.
    asio::awaitable<bool> is_there(api::Job job) {
        return run_on(parts_.files->disk(), [job = std::move(job)] { return has_weights(job); });
    }

    asio::awaitable<api::Job> found(const Request& request) {
        const std::string name(request.path_parameter("model"));
        if (auto id = job_of_model(name)) {
            const auto job = co_await parts_.manager.get(*std::move(id));
            if (job && model_name(*job) == name) {
                if (co_await is_there(*job)) {
                    co_return *job;
                }
            }
        }
        refuse(request, 404, "model_not_found", "there is no model '" + name + "'", "model");
    }

    const OpenAiParts parts_;
};

}  // namespace

std::vector<http::Route> make_model_routes(const OpenAiParts& parts) {
    const auto api = std::make_shared<ModelApi>(parts);
    std::vector<http::Route> routes{
        api_route(api, "GET", "/v1/models", &ModelApi::list),
        api_route(api, "GET", "/v1/models/{model}", &ModelApi::get),
        api_route(api, "DELETE", "/v1/models/{model}", &ModelApi::remove),
    };
    // Endpoints that OpenAI's clients use with models from the list.
    for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/embeddings"}) {
        routes.push_back(api_route(api, "POST", path, &ModelApi::serve));
        routes.back().json_body = false;  // the answer does not depend on the body
    }
    return routes;
}

}  // namespace distilld::openai

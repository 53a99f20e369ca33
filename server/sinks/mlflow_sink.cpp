#include "server/sinks/registry.hpp"

#include <algorithm>
#include <boost/json/object.hpp>
#include <filesystem>
#include <utility>

#include "base/files/files.hpp"
#include "base/json_text.hpp"
#include "server/sinks/mlflow_messages.hpp"
#include "server/sinks/sink_http.hpp"

namespace distilld::sinks {

namespace asio = boost::asio;
namespace json = boost::json;

namespace {

constexpr const char* kField = "/metrics/mlflow_url";
constexpr const char* kApi = "/api/2.0/mlflow/";
constexpr const char* kDefaultExperiment = "distilld";
constexpr std::uint64_t kMaxRunFileBytes = 64U << 10U;
// MLflow's limits per request.
constexpr std::size_t kMaxMetrics = 1000;
constexpr std::size_t kMaxParams = 100;

using Done = boost::system::result<void, SinkFailure>;

std::string text_at(const json::object& answer, std::string_view pointer) {
    const json::value whole(answer);
    boost::system::error_code absent;
    const json::value* found = whole.find_pointer(pointer, absent);
    return found != nullptr && found->is_string() ? std::string(found->get_string()) : std::string();
}

/// Removes and returns at most `count` objects from the beginning of `rest`.
json::array take_first(std::vector<json::object>& rest, std::size_t count) {
    const auto end = rest.begin() + static_cast<std::ptrdiff_t>(std::min(count, rest.size()));
    json::array taken(std::make_move_iterator(rest.begin()), std::make_move_iterator(end));
    rest.erase(rest.begin(), end);
    return taken;
}

class MlflowSink final : public Sink {
  public:
    MlflowSink(const SinkContext& context, std::unique_ptr<SinkHttp> http)
        : url_(context.spec.metrics.mlflow_url),
          run_file_(std::filesystem::path(context.spec.output) / kMlflowRunFile),
          name_(context.spec.name),
          job_id_(context.job_id),
          spec_json_(context.spec_json),
          experiment_(context.environment("MLFLOW_EXPERIMENT_NAME")),
          goes_on_(context.goes_on),
          http_(std::move(http)) {
        if (experiment_.empty()) {
            experiment_ = kDefaultExperiment;
        }
    }

    asio::awaitable<WriteResult> write(const std::vector<SinkItem>& items) override {
        if (run_id_.empty()) {
            if (const Done opened = co_await open_run(unix_milliseconds(items.front().at)); !opened) {
                co_return opened.error();
            }
        }
        if (const Done described = co_await log_params(); !described) {
            co_return described.error();
        }
        if (const Done logged = co_await log_metrics(items); !logged) {
            co_return logged.error();
        }
        if (const auto* end = std::get_if<EndRecord>(&items.back().record)) {
            if (const Done ended = co_await end_run(*end, unix_milliseconds(items.back().at)); !ended) {
                co_return ended.error();
            }
        }
        co_return Written();
    }

  private:
    asio::awaitable<HttpReply> post(const char* endpoint, json::object body) {
        return http_->post(kApi + std::string(endpoint), std::move(body));
    }

    /// For requests with an empty answer.
    asio::awaitable<Done> tell(const char* endpoint, json::object body) {
        const HttpReply reply = co_await post(endpoint, std::move(body));
        co_return reply.ok() ? Done() : Done(failure_of(reply));
    }

    /// The run of an earlier attempt, or a new one.
    asio::awaitable<Done> open_run(std::int64_t now) {
        if (goes_on_) {
            if (const Done found = co_await find_run(); !found || !run_id_.empty()) {
                co_return found;
            }
        }
        if (const Done chosen = co_await choose_experiment(); !chosen) {
            co_return chosen;
        }
        json::object body{{"experiment_id", experiment_id_}, {"run_name", name_}, {"start_time", now}};
        json::array tags{json::object{{"key", "mlflow.source.name"}, {"value", "distilld"}},
                         json::object{{"key", "mlflow.source.type"}, {"value", "JOB"}}};
        if (!job_id_.empty()) {
            tags.push_back(json::object{{"key", "distilld.job_id"}, {"value", job_id_}});
        }
        body["tags"] = std::move(tags);
        const HttpReply created = co_await post("runs/create", std::move(body));
        if (!created.ok()) {
            co_return failure_of(created);
        }
        run_id_ = text_at(created.body, "/run/info/run_id");
        if (run_id_.empty()) {
            co_return SinkFailure{url_ + ": the answer to runs/create has no run.info.run_id", true};
        }
        params_ = mlflow_params(spec_json_, {});
        // Without the file, a resumed run would be a new one on the server; that is not worth a failure.
        static_cast<void>(
            write_file_atomically(run_file_, to_text(json::object{{"server", url_}, {"run_id", run_id_}}) + "\n"));
        co_return Done();
    }

    /// Finds the run named by the file in the output, if the server has it.
    asio::awaitable<Done> find_run() {
        const Result<std::string> text = read_text_file(run_file_, kMaxRunFileBytes);
        const auto file = parse_json_text(text ? *text : std::string(), 4);
        if (!file || !file->is_object() || text_at(file->get_object(), "/server") != url_) {
            co_return Done();
        }
        const std::string id = text_at(file->get_object(), "/run_id");
        const HttpReply got = co_await http_->get(kApi + ("runs/get?run_id=" + percent_encoded(id)));
        const bool gone = got.status == 404 || text_at(got.body, "/run/info/lifecycle_stage") == "deleted";
        if (gone) {
            co_return Done();
        }
        if (!got.ok()) {
            co_return failure_of(got);
        }
        auto reopening = tell("runs/update", {{"run_id", id}, {"status", "RUNNING"}});
        if (const Done reopened = co_await std::move(reopening); !reopened) {
            co_return reopened;
        }
        history_ = read_mlflow_history(got.body);
        params_ = mlflow_params(spec_json_, history_.params);
        run_id_ = id;
        co_return Done();
    }

    asio::awaitable<Done> choose_experiment() {
        const HttpReply got =
            co_await http_->get(kApi + ("experiments/get-by-name?experiment_name=" + percent_encoded(experiment_)));
        if (got.ok()) {
            experiment_id_ = text_at(got.body, "/experiment/experiment_id");
            co_return Done();
        }
        if (got.status != 404) {
            co_return failure_of(got);
        }
        auto creating = post("experiments/create", {{"name", experiment_}});
        const HttpReply created = co_await std::move(creating);
        if (!created.ok()) {
            SinkFailure failure = failure_of(created);
            // Another job was faster: the next try finds the experiment.
            failure.for_good = failure.for_good && text_at(created.body, "/error_code") != "RESOURCE_ALREADY_EXISTS";
            co_return failure;
        }
        experiment_id_ = text_at(created.body, "/experiment_id");
        co_return Done();
    }

    asio::awaitable<Done> log_params() {
        while (!params_.empty()) {
            std::vector<json::object> rest = params_;
            json::array some = take_first(rest, kMaxParams);
            auto logging = tell("runs/log-batch", {{"run_id", run_id_}, {"params", std::move(some)}});
            const Done logged = co_await std::move(logging);
            if (!logged && !logged.error().for_good) {
                co_return logged;
            }
            params_ = std::move(rest);  // without refused parameters, which would be refused again
            if (!logged) {
                co_return logged;
            }
        }
        co_return Done();
    }

    asio::awaitable<Done> log_metrics(const std::vector<SinkItem>& items) {
        std::vector<json::object> metrics = mlflow_metrics(items, history_);
        while (!metrics.empty()) {
            json::array some = take_first(metrics, kMaxMetrics);
            auto logging = tell("runs/log-batch", {{"run_id", run_id_}, {"metrics", std::move(some)}});
            if (const Done logged = co_await std::move(logging); !logged) {
                co_return logged;
            }
        }
        co_return Done();
    }

    asio::awaitable<Done> end_run(EndRecord end, std::int64_t now) {
        json::array tags;
        if (!end.weights_sha256.empty()) {
            tags.push_back(json::object{{"key", "distilld.weights_sha256"}, {"value", end.weights_sha256}});
        }
        if (!end.message.empty()) {
            tags.push_back(json::object{{"key", "distilld.failure"}, {"value", end.message}});
        }
        if (!tags.empty()) {
            auto tagging = tell("runs/log-batch", {{"run_id", run_id_}, {"tags", std::move(tags)}});
            if (const Done tagged = co_await std::move(tagging); !tagged) {
                co_return tagged;
            }
        }
        auto updating =
            tell("runs/update", {{"run_id", run_id_}, {"status", mlflow_status(end.status)}, {"end_time", now}});
        const Done updated = co_await std::move(updating);
        co_return updated;
    }

    std::string url_;
    std::filesystem::path run_file_;
    std::string name_;
    std::string job_id_;
    std::string spec_json_;
    std::string experiment_;
    bool goes_on_;
    std::unique_ptr<SinkHttp> http_;
    std::string experiment_id_;
    std::string run_id_;  ///< empty: not open yet
    MlflowHistory history_;
    std::vector<json::object> params_;  ///< still to be logged
};

}  // namespace

Result<std::unique_ptr<Sink>> make_mlflow_sink(const SinkContext& context, asio::any_io_executor thread) {
    if (context.spec.metrics.mlflow_url.empty()) {
        return std::unique_ptr<Sink>();
    }
    SinkHttpOptions options;
    options.field = kField;
    options.url = context.spec.metrics.mlflow_url;
    const std::string user = context.environment("MLFLOW_TRACKING_USERNAME");
    if (!user.empty()) {
        const std::string password = context.environment("MLFLOW_TRACKING_PASSWORD");
        options.headers.push_back({"Authorization", basic_authorization(user, password)});
    } else {
        options.bearer = context.environment("MLFLOW_TRACKING_TOKEN");
    }
    Result<std::unique_ptr<SinkHttp>> http = make_sink_http(std::move(thread), std::move(options));
    if (!http) {
        return http.error();
    }
    return std::unique_ptr<Sink>(std::make_unique<MlflowSink>(context, std::move(*http)));
}

}  // namespace distilld::sinks

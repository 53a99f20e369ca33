#include "server/teacher/teacher_service.hpp"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <utility>

#include "base/json_text.hpp"
#include "base/time.hpp"
#include "distilld_version.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/core/teacher_protocol.hpp"
#include "server/support/log.hpp"

namespace distilld::teacher {

namespace {

namespace asio = boost::asio;
namespace json = boost::json;

constexpr const char* kNoMemoryLeft = "answers in progress take all the memory that the server allows";
constexpr const char* kInferPattern = "/v2/models/{model}/infer";
constexpr const char* kHeadPattern = "/v2/models/{model}/head";
constexpr const char* kCompletionsPattern = "/v1/completions";

http::Response json_answer(unsigned status, std::string body) {
    http::Response response;
    response.status = status;
    response.body = std::move(body);
    return response;
}

http::Response error_answer(unsigned status, std::string_view message) {
    http::Response response = json_answer(status, error_body(message));
    if (status == 503) {
        response.headers.emplace_back("Retry-After", "1");
    }
    return response;
}

http::Response error_answer(const Error& error) {
    if (error.kind == ErrorKind::invalid_input) {
        return error_answer(400, error.message);
    }
    log::error("teacher", error.message);
    return error_answer(500, error.message);
}

http::Response unknown_model(std::string_view asked, const std::string& served) {
    return error_answer(404, "there is no model '" + std::string(asked) + "': this server has '" + served + "'");
}

http::Response not_loaded() {
    return error_answer(503, "the model is being loaded");
}

using Answer = std::function<http::Response(const http::Request&)>;

asio::awaitable<http::Response> answer_at_once(Answer answer, http::Request request) {
    co_return answer(request);
}

/// A handler that never waits.
http::Handler immediate(Answer answer) {
    return [answer = std::move(answer)](http::Request request) { return answer_at_once(answer, std::move(request)); };
}

/// A route that anyone may read, under any Host.
http::Route for_anybody(const char* pattern, http::Handler handler) {
    http::Route row{"GET", pattern, std::move(handler)};
    row.any_host = true;
    return row;
}

/// Counts an answer's memory against the budget while the answer is in progress.
std::shared_ptr<const void> hold(const std::shared_ptr<std::uint64_t>& total, std::uint64_t bytes) {
    *total += bytes;
    return {nullptr, [total, bytes](const void*) { *total -= bytes; }};
}

}  // namespace

TeacherService::TeacherService(asio::any_io_executor encode, ScoreQueue& queue, TeacherMetrics& metrics,
                               TeacherServiceOptions options)
    : encode_(std::move(encode)), queue_(queue), metrics_(metrics), options_(std::move(options)) {}

void TeacherService::set_model(models::TeacherScorer& scorer) {
    scorer_ = &scorer;
    metrics_.update([&](TeacherCounts& counts) {
        const models::ServedModel& model = scorer.model();
        counts.models[{model.device, model.dtype, options_.model_name, kVersion}] = 1;
    });
}

std::vector<http::Route> TeacherService::routes() {
    const auto plain = [this](http::Response (TeacherService::*member)() const) {
        return immediate([this, member](const http::Request&) { return (this->*member)(); });
    };
    const auto about_model = [this](http::Response (TeacherService::*member)(const http::Request&) const) {
        return immediate([this, member](const http::Request& request) { return (this->*member)(request); });
    };
    http::Handler infer_handler = [this](http::Request request) { return infer(std::move(request)); };
    http::Handler head_handler = [this](http::Request request) { return head(std::move(request)); };
    http::Handler completions_handler = [this](http::Request request) { return complete(std::move(request)); };
    return {
        {"GET", "/v2", plain(&TeacherService::server_metadata)},
        for_anybody("/v2/health/live", plain(&TeacherService::live)),
        for_anybody("/v2/health/ready", plain(&TeacherService::ready)),
        // The service's names for the same, so that `distilld healthcheck` and probes treat both alike.
        for_anybody("/healthz", plain(&TeacherService::live)),
        for_anybody("/readyz", plain(&TeacherService::ready)),
        {"GET", "/v2/models/{model}", about_model(&TeacherService::model_metadata)},
        {"GET", "/v2/models/{model}/ready", about_model(&TeacherService::model_ready)},
        {"GET", kHeadPattern, std::move(head_handler)},
        // A client that hung up (a lost hedge, a timeout) needs no answer, so its place in the queue is freed.
        {"POST", kInferPattern, std::move(infer_handler), true},
        {"POST", kCompletionsPattern, std::move(completions_handler), true},
        {"GET", "/v1/models", plain(&TeacherService::model_list)},
        for_anybody("/metrics", plain(&TeacherService::metrics_text)),
    };
}

http::Observer TeacherService::observer() {
    return [this](const std::string&, const std::string& pattern, unsigned status, std::chrono::nanoseconds duration) {
        if (pattern != kInferPattern && pattern != kCompletionsPattern) {
            return;
        }
        const char* const protocol =
            to_string(pattern == kInferPattern ? TeacherProtocol::kserve : TeacherProtocol::seed);
        metrics_.update([&](TeacherCounts& counts) {
            ++counts.requests[{std::to_string(status), protocol}];
            counts.durations[{protocol}].observe(to_seconds(duration));
        });
    };
}

asio::awaitable<TeacherService::Scored> TeacherService::score(models::ScoreRequest request,
                                                              std::uint64_t answer_bytes) {
    Scored scored;
    // A single request within the limits is always accepted.
    if (*held_bytes_ != 0 && *held_bytes_ + answer_bytes > options_.max_held_bytes) {
        scored.failure = error_answer(503, kNoMemoryLeft);
        co_return scored;
    }
    scored.held = hold(held_bytes_, answer_bytes);
    ScoreQueue::Outcome outcome = co_await queue_.submit(*scorer_, std::move(request));
    if (outcome.refusal == ScoreQueue::Refusal::full) {
        scored.failure = error_answer(503, "the queue is full");
    } else if (outcome.refusal) {
        scored.failure = error_answer(503, "the request could not be computed in time");
    } else if (!*outcome.result) {
        scored.failure = error_answer(outcome.result->error());
    } else {
        scored.result = std::move(**outcome.result);
        scored.finished = outcome.finished;
    }
    co_return scored;
}

asio::awaitable<void> TeacherService::wait_delay(std::chrono::steady_clock::time_point finished) {
    if (options_.delay <= std::chrono::nanoseconds::zero()) {
        co_return;
    }
    const auto executor = co_await asio::this_coro::executor;
    asio::steady_timer timer(executor);
    timer.expires_at(finished + std::chrono::duration_cast<std::chrono::steady_clock::duration>(options_.delay));
    co_await timer.async_wait(asio::use_awaitable);
}

asio::awaitable<http::Response> TeacherService::infer(http::Request request) {
    const std::string name(request.path_parameter("model"));
    if (name != options_.model_name) {
        co_return unknown_model(name, options_.model_name);
    }
    if (scorer_ == nullptr) {
        co_return not_loaded();
    }
    const auto header_length = request.header(kserve::kHeaderLengthField);
    auto body = std::make_shared<const std::string>(std::move(request.body));
    auto parsed = parse_infer(std::move(body), header_length, scorer_->model(), options_.limits);
    if (!parsed) {
        co_return error_answer(parsed.error());
    }
    auto plan = std::make_shared<InferPlan>(std::move(*parsed));
    Scored scored = co_await score(plan->score, plan->answer_bytes);
    if (!scored.result) {
        co_return std::move(scored.failure);
    }
    auto result = std::make_shared<models::ScoreResult>(std::move(*scored.result));
    auto build = [plan, result, model = scorer_->model(), name] {
        return build_infer(*plan, std::move(*result), model, name);
    };
    Result<kserve::EncodedMessage> message = co_await run_on(encode_, std::move(build));
    if (!message) {
        co_return error_answer(500, message.error().message);
    }
    co_await wait_delay(scored.finished);
    http::Response response;
    response.content_type = std::string(message->content_type());
    if (message->json_header_length) {
        response.headers.emplace_back(std::string(kserve::kHeaderLengthField),
                                      std::to_string(*message->json_header_length));
    }
    response.body = std::move(message->body);
    response.until_sent = std::move(scored.held);
    co_return response;
}

asio::awaitable<http::Response> TeacherService::head(http::Request request) {
    const std::string name(request.path_parameter("model"));
    if (name != options_.model_name) {
        co_return unknown_model(name, options_.model_name);
    }
    if (scorer_ == nullptr) {
        co_return not_loaded();
    }
    const models::ServedHead& served = scorer_->model().head;
    if (!served.is_there()) {
        co_return error_answer(404, "this server does not publish the model's head");
    }
    const std::uint64_t bytes = head_answer_bytes(served, request);
    if (*held_bytes_ != 0 && *held_bytes_ + bytes > options_.max_held_bytes) {
        co_return error_answer(503, kNoMemoryLeft);
    }
    auto held = hold(held_bytes_, bytes);
    auto copy = [head = served, request = std::move(request)] { return head_answer(head, request); };
    http::Response response = co_await run_on(encode_, std::move(copy));
    response.until_sent = std::move(held);
    co_return response;
}

asio::awaitable<http::Response> TeacherService::complete(http::Request request) {
    if (scorer_ == nullptr) {
        co_return not_loaded();
    }
    auto plan = parse_seed(request.body, scorer_->model(), options_.limits);
    if (!plan) {
        co_return error_answer(plan.error());
    }
    if (plan->model && *plan->model != options_.model_name) {
        co_return unknown_model(*plan->model, options_.model_name);
    }
    Scored scored = co_await score(plan->score, plan->answer_bytes);
    if (!scored.result) {
        co_return std::move(scored.failure);
    }
    auto result = std::make_shared<models::ScoreResult>(std::move(*scored.result));
    auto build = [score = std::move(plan->score), result, vocabulary = scorer_->model().vocabulary_size] {
        return build_seed(score, *result, vocabulary);
    };
    std::string body = co_await run_on(encode_, std::move(build));
    result.reset();
    co_await wait_delay(scored.finished);
    http::Response response = json_answer(200, std::move(body));
    response.until_sent = std::move(scored.held);
    co_return response;
}

http::Response TeacherService::live() const {
    return json_answer(200, R"({"live":true})");
}

http::Response TeacherService::ready() const {
    return scorer_ != nullptr ? json_answer(200, R"({"ready":true})") : not_loaded();
}

http::Response TeacherService::server_metadata() const {
    return json_answer(
        200, to_text(json::object{
                 {"name", "distilld"}, {"version", kVersion}, {"extensions", json::array{"binary_tensor_data"}}}));
}

http::Response TeacherService::model_metadata(const http::Request& request) const {
    if (request.path_parameter("model") != options_.model_name) {
        return unknown_model(request.path_parameter("model"), options_.model_name);
    }
    return scorer_ != nullptr ? json_answer(200, build_metadata(scorer_->model(), options_.model_name, options_.limits))
                              : not_loaded();
}

http::Response TeacherService::model_ready(const http::Request& request) const {
    if (request.path_parameter("model") != options_.model_name) {
        return unknown_model(request.path_parameter("model"), options_.model_name);
    }
    if (scorer_ == nullptr) {
        return not_loaded();
    }
    return json_answer(200, to_text(json::object{{"name", options_.model_name}, {"ready", true}}));
}

http::Response TeacherService::model_list() const {
    const json::object model{
        {"id", options_.model_name}, {"object", "model"}, {"created", 0}, {"owned_by", "distilld"}};
    return json_answer(200, to_text(json::object{{"object", "list"}, {"data", json::array{model}}}));
}

http::Response TeacherService::metrics_text() const {
    http::Response response;
    response.content_type = kMetricsContentType;
    response.body = metrics_.text();
    return response;
}

}  // namespace distilld::teacher

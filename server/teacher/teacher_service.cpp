#include "server/teacher/teacher_service.hpp"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <functional>
#include <iterator>
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
constexpr const char* kGenerationPattern = "/v1/completions in OpenAI's form";
constexpr const char* kChatPattern = "/v1/chat/completions";

/// The label of a request's protocol in the metrics; null: it is not counted.
const char* protocol_of(const std::string& pattern) {
    return pattern == kInferPattern                                   ? to_string(TeacherProtocol::kserve)
           : pattern == kCompletionsPattern                           ? to_string(TeacherProtocol::seed)
           : pattern == kGenerationPattern || pattern == kChatPattern ? "openai"
                                                                      : nullptr;
}

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

http::Response answers_samples() {
    return error_answer(404, "the model is a TorchScript module: it answers samples, at /v2/models/{model}/infer");
}

using Answer = std::function<http::Response(const http::Request&)>;

asio::awaitable<http::Response> answer_at_once(Answer answer, http::Request request) {
    co_return answer(request);
}

/// A handler that never waits.
http::Handler immediate(Answer answer) {
    return [answer = std::move(answer)](http::Request request) { return answer_at_once(answer, std::move(request)); };
}

/// A route that answers under any Host.
http::Route under_any_host(const char* pattern, http::Handler handler) {
    http::Route row{"GET", pattern, std::move(handler)};
    row.any_host = true;
    return row;
}

/// The same for anyone, without a key.
http::Route for_anybody(const char* pattern, http::Handler handler) {
    http::Route row = under_any_host(pattern, std::move(handler));
    row.right = http::Right::nothing;
    return row;
}

/// Leaves a result of the compute thread where the request waits for it.
template <class T>
Result<void> keep(T& place, Result<T> result) {
    if (!result) {
        return result.error();
    }
    place = std::move(*result);
    return {};
}

}  // namespace

TeacherService::TeacherService(asio::any_io_executor encode, ScoreQueue& queue, GenerationQueue* generation,
                               TeacherMetrics& metrics, TeacherServiceOptions options)
    : encode_(std::move(encode)),
      queue_(queue),
      metrics_(metrics),
      options_(std::move(options)),
      memory_(options_.max_held_bytes),
      generation_(generation) {
    if (generation != nullptr) {
        const auto& limits = options_.limits;
        completions_.emplace(encode_, *generation, memory_,
                             CompletionOptions{options_.model_name, limits.max_answer_bytes, options_.max_adapters});
    }
}

void TeacherService::set_model(models::TeacherScorer& scorer, const ServedText* text) {
    scorer_ = &scorer;
    if (models::Generator* generator = scorer.generator(); generator != nullptr && text != nullptr && completions_) {
        generation_->set_generator(*generator);
        completions_->set_model(scorer.model(), generator->limits(), *text);
    }
    note_model();
}

void TeacherService::set_module(models::TeacherModule& module, kserve::SampleNames names) {
    module_ = &module;
    names_ = std::move(names);
    note_model();
}

void TeacherService::note_model() {
    metrics_.update([this](TeacherCounts& counts) {
        counts.models[{model()->device, model()->dtype, options_.model_name, kVersion}] = 1;
    });
}

const models::ServedModel* TeacherService::model() const {
    if (module_ != nullptr) {
        return &module_->model();
    }
    return scorer_ != nullptr ? &scorer_->model() : nullptr;
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
    std::vector<http::Route> routes{
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
        under_any_host("/metrics", plain(&TeacherService::metrics_text)),
    };
    if (completions_) {
        std::ranges::move(completions_->routes(), std::back_inserter(routes));
    }
    return routes;
}

http::Observer TeacherService::observer() {
    return [this](const std::string&, const std::string& pattern, unsigned status, std::chrono::nanoseconds duration) {
        const char* const protocol = protocol_of(pattern);
        if (protocol == nullptr) {
            return;
        }
        metrics_.update([&](TeacherCounts& counts) {
            ++counts.requests[{std::to_string(status), protocol}];
            counts.durations[{protocol}].observe(to_seconds(duration));
        });
    };
}

asio::awaitable<TeacherService::Computed> TeacherService::compute(std::uint64_t positions, std::uint64_t answer_bytes,
                                                                  ScoreQueue::Work work) {
    Computed computed;
    computed.held = memory_.hold(answer_bytes);
    if (!computed.held) {
        computed.failure = error_answer(503, kNoMemoryLeft);
        co_return computed;
    }
    const ScoreQueue::Outcome outcome = co_await queue_.submit(positions, std::move(work));
    if (outcome.refusal == ScoreQueue::Refusal::full) {
        computed.failure = error_answer(503, "the queue is full");
    } else if (outcome.refusal) {
        computed.failure = error_answer(503, "the request could not be computed in time");
    } else if (!outcome.result) {
        computed.failure = error_answer(outcome.result.error());
    }
    computed.finished = outcome.finished;
    co_return computed;
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
    if (model() == nullptr) {
        co_return not_loaded();
    }
    const auto header_length = request.header(kserve::kHeaderLengthField);
    auto message =
        read_infer(std::make_shared<const std::string>(std::move(request.body)), header_length, options_.limits);
    if (!message) {
        co_return error_answer(message.error());
    }
    // Not one conditional expression: GCC 13 would move the message for both.
    if (module_ != nullptr) {
        co_return co_await infer_samples(std::move(*message));
    }
    co_return co_await infer_tokens(std::move(*message));
}

asio::awaitable<http::Response> TeacherService::infer_tokens(kserve::InferRequest request) {
    auto parsed = parse_infer(request, scorer_->model(), options_.limits);
    if (!parsed) {
        co_return error_answer(parsed.error());
    }
    auto plan = std::make_shared<const InferPlan>(std::move(*parsed));
    auto result = std::make_shared<models::ScoreResult>();
    auto work = [plan, result, scorer = scorer_] { return keep(*result, scorer->score(plan->score)); };
    Computed computed = co_await compute(plan->score.input_ids.size(), plan->answer_bytes, std::move(work));
    if (computed.failure) {
        co_return std::move(*computed.failure);
    }
    auto build = [plan, result, scorer = scorer_, name = options_.model_name] {
        return build_infer(*plan, std::move(*result), scorer->model(), name);
    };
    co_return co_await encoded(std::move(build), std::move(computed));
}

asio::awaitable<http::Response> TeacherService::infer_samples(kserve::InferRequest request) {
    auto parsed = parse_samples(std::move(request), names_);
    if (!parsed) {
        co_return error_answer(parsed.error());
    }
    auto plan = std::make_shared<const SamplePlan>(std::move(*parsed));
    auto result = std::make_shared<TeacherTargets>();
    auto work = [plan, result, module = module_] { return keep(*result, module->answer(plan->samples)); };
    Computed computed = co_await compute(plan->samples.rows, 0, std::move(work));
    if (computed.failure) {
        co_return std::move(*computed.failure);
    }
    // Nobody knows the size of a module's outputs before they are there.
    const std::uint64_t bytes = sample_answer_bytes(*plan, *result);
    if (bytes > options_.limits.max_answer_bytes) {
        co_return error_answer(400, "the answer to " + std::to_string(plan->samples.rows) + " samples would take " +
                                        std::to_string(bytes) + " bytes, the server's limit is " +
                                        std::to_string(options_.limits.max_answer_bytes) + ": send fewer samples");
    }
    computed.held = memory_.hold(bytes);
    if (!computed.held) {
        co_return error_answer(503, kNoMemoryLeft);
    }
    auto build = [plan, result, name = options_.model_name] { return build_samples(*plan, *result, name); };
    co_return co_await encoded(std::move(build), std::move(computed));
}

asio::awaitable<http::Response> TeacherService::encoded(std::function<Result<kserve::EncodedMessage>()> build,
                                                        Computed computed) {
    Result<kserve::EncodedMessage> message = co_await run_on(encode_, std::move(build));
    if (!message) {
        co_return error_answer(500, message.error().message);
    }
    co_await wait_delay(computed.finished);
    http::Response response;
    response.content_type = std::string(message->content_type());
    if (message->json_header_length) {
        response.headers.emplace_back(std::string(kserve::kHeaderLengthField),
                                      std::to_string(*message->json_header_length));
    }
    response.body = std::move(message->body);
    response.until_sent = std::move(computed.held);
    co_return response;
}

asio::awaitable<http::Response> TeacherService::head(http::Request request) {
    const std::string name(request.path_parameter("model"));
    if (name != options_.model_name) {
        co_return unknown_model(name, options_.model_name);
    }
    if (model() == nullptr) {
        co_return not_loaded();
    }
    const models::ServedHead& served = model()->head;
    if (!served.is_there()) {
        co_return error_answer(404, "this server does not publish the model's head");
    }
    auto held = memory_.hold(head_answer_bytes(served, request));
    if (!held) {
        co_return error_answer(503, kNoMemoryLeft);
    }
    auto copy = [head = served, request = std::move(request)] { return head_answer(head, request); };
    http::Response response = co_await run_on(encode_, std::move(copy));
    response.until_sent = std::move(held);
    co_return response;
}

asio::awaitable<http::Response> TeacherService::complete(http::Request request) {
    if (module_ != nullptr) {
        co_return answers_samples();
    }
    if (scorer_ == nullptr) {
        co_return not_loaded();
    }
    auto body = read_body(request.body);
    if (!body) {
        co_return error_answer(body.error());
    }
    if (!is_seed(*body) && completions_) {
        http::Response answer = co_await completions_->complete(std::move(*body));
        answer.pattern = kGenerationPattern;
        co_return answer;
    }
    auto parsed = parse_seed(*body, scorer_->model(), options_.limits);
    if (!parsed) {
        co_return error_answer(parsed.error());
    }
    if (parsed->model && *parsed->model != options_.model_name) {
        co_return unknown_model(*parsed->model, options_.model_name);
    }
    co_return co_await score_rows(std::move(*parsed));
}

asio::awaitable<http::Response> TeacherService::score_rows(SeedPlan asked) {
    auto plan = std::make_shared<const SeedPlan>(std::move(asked));
    auto result = std::make_shared<models::ScoreResult>();
    auto work = [plan, result, scorer = scorer_] { return keep(*result, scorer->score(plan->score)); };
    Computed computed = co_await compute(plan->score.input_ids.size(), plan->answer_bytes, std::move(work));
    if (computed.failure) {
        co_return std::move(*computed.failure);
    }
    auto build = [plan, result, vocabulary = scorer_->model().vocabulary_size] {
        return build_seed(plan->score, *result, vocabulary);
    };
    std::string body = co_await run_on(encode_, std::move(build));
    result.reset();
    co_await wait_delay(computed.finished);
    http::Response response = json_answer(200, std::move(body));
    response.until_sent = std::move(computed.held);
    co_return response;
}

http::Response TeacherService::live() const {
    return json_answer(200, R"({"live":true})");
}

http::Response TeacherService::ready() const {
    return model() != nullptr ? json_answer(200, R"({"ready":true})") : not_loaded();
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
    if (module_ != nullptr) {
        return json_answer(200, build_module_metadata(module_->model(), names_, options_.model_name));
    }
    return scorer_ != nullptr ? json_answer(200, build_metadata(scorer_->model(), options_.model_name, options_.limits))
                              : not_loaded();
}

http::Response TeacherService::model_ready(const http::Request& request) const {
    if (request.path_parameter("model") != options_.model_name) {
        return unknown_model(request.path_parameter("model"), options_.model_name);
    }
    if (model() == nullptr) {
        return not_loaded();
    }
    return json_answer(200, to_text(json::object{{"name", options_.model_name}, {"ready", true}}));
}

http::Response TeacherService::metrics_text() const {
    http::Response response;
    response.content_type = kMetricsContentType;
    response.body = metrics_.text();
    return response;
}

}  // namespace distilld::teacher

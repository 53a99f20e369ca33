#include "server/teacher/completion_service.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <chrono>
#include <random>
#include <utility>

#include "base/join.hpp"
#include "base/json_text.hpp"
#include "base/random_hex.hpp"
#include "base/scope_exit.hpp"
#include "base/unix_time.hpp"
#include "base/utf8.hpp"
#include "pipeline/async/run_on.hpp"
#include "server/support/log.hpp"
#include "server/teacher/chat_template.hpp"
#include "server/teacher/teacher_codec.hpp"

namespace distilld::teacher {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;
using namespace std::chrono_literals;

constexpr std::uint32_t kDefaultCompletion = 16;  // OpenAI's
constexpr std::uint32_t kDefaultChat = 2048;
/// Each is a process for a moment.
constexpr std::uint32_t kMaxRenderings = 4;
/// A stream without news says that it is there.
constexpr auto kHeartbeat = 5s;
/// Memory of a named token on its way, as values and as text.
constexpr std::uint64_t kBytesPerToken = 200;

http::Response object_answer(unsigned status, const json::object& object) {
    http::Response response;
    response.status = status;
    response.body = to_text(object);
    if (status == 503) {
        response.headers.emplace_back("Retry-After", "1");
    }
    return response;
}

http::Response refused(unsigned status, const std::string& message, const std::string& parameter = {},
                       const std::string& code = {}) {
    return object_answer(status, openai_error(status, message, parameter, code));
}

http::Response refused(const api::Violation& violation) {
    const std::string parameter = violation.pointer.empty() ? "" : violation.pointer.substr(1);
    return refused(400, (parameter.empty() ? "the body" : parameter) + ": " + violation.detail, parameter,
                   violation.code);
}

http::Response refused(const GenerationFailure& failure) {
    return refused(failure.busy ? 503 : 500, failure.message);
}

std::uint64_t random_seed() {
    std::random_device device;
    return (std::uint64_t{device()} << 32U) | device();
}

/// Memory of the answer with what it names at each position.
std::uint64_t bytes_of(const CompletionPlan& plan) {
    const std::uint64_t named = 1 + plan.asked.logprobs.value_or(0);
    std::uint64_t tokens = 0;
    for (const Prompt& prompt : plan.asked.prompts) {
        tokens += plan.asked.n * ((plan.asked.echo ? prompt.ids.size() : 0) + plan.max_tokens);
    }
    return tokens * named * kBytesPerToken;
}

asio::awaitable<http::Response> answer_at_once(http::Response response) {
    co_return response;
}

class CompletionStream final : public http::BodyStream {
  public:
    CompletionStream(std::unique_ptr<GenerationQueue::Answers> sequences, CompletionAnswer answer,
                     std::shared_ptr<const void> held)
        : sequences_(std::move(sequences)), answer_(std::move(answer)), held_(std::move(held)) {}

    asio::awaitable<std::optional<std::string>> next() override {
        if (ended_) {
            co_return std::nullopt;
        }
        for (;;) {
            const auto news = co_await sequences_->next(std::chrono::steady_clock::now() + kHeartbeat);
            for (const std::size_t sequence : answer_.take(news)) {
                sequences_->end(sequence);
            }
            std::string piece = answer_.events();
            ended_ = sequences_->over() || answer_.failed();
            if (const auto& failure = sequences_->failure(); failure || answer_.failed()) {
                piece += event_of(openai_error(500, failure ? failure->message : kNotFinite));
            }
            if (ended_) {
                piece += answer_.last_events();
            } else if (piece.empty() && news.empty()) {
                piece = ": keep-alive\n\n";
            }
            if (!piece.empty()) {
                co_return piece;
            }
        }
    }

    static constexpr const char* kNotFinite = "the model's logits are not finite; are its weights damaged?";

  private:
    std::unique_ptr<GenerationQueue::Answers> sequences_;
    CompletionAnswer answer_;
    std::shared_ptr<const void> held_;
    bool ended_ = false;
};

}  // namespace

CompletionService::CompletionService(asio::any_io_executor encode, GenerationQueue& queue, AnswerMemory& memory,
                                     CompletionOptions options)
    : encode_(std::move(encode)),
      queue_(queue),
      memory_(memory),
      options_(std::move(options)),
      adapters_(queue, options_.max_adapters),
      rendered_(queue.executor()) {}

void CompletionService::set_model(const models::ServedModel& model, const models::GeneratorLimits& limits,
                                  const ServedText& text) {
    model_ = &model;
    limits_ = limits;
    text_ = &text;
}

std::vector<http::Route> CompletionService::routes() {
    http::Handler chatting = [this](http::Request request) { return chat(std::move(request)); };
    http::Handler tokenizing = [this](http::Request request) { return tokenize(std::move(request)); };
    http::Handler detokenizing = [this](http::Request request) { return detokenize(std::move(request)); };
    http::Handler loading = [this](http::Request request) { return load_adapter(std::move(request)); };
    http::Handler updating = [this](http::Request request) { return update_weights(std::move(request)); };
    http::Handler unloading = [this](http::Request request) { return unload_adapter(std::move(request)); };
    const auto at_once = [this](http::Response (CompletionService::*member)() const) -> http::Handler {
        return [this, member](const http::Request&) { return answer_at_once((this->*member)()); };
    };
    return {{"POST", "/v1/chat/completions", std::move(chatting), true},
            {"POST", "/tokenize", std::move(tokenizing), true},
            {"POST", "/detokenize", std::move(detokenizing), true},
            {"POST", "/v1/load_lora_adapter", std::move(loading)},
            {"POST", "/v1/unload_lora_adapter", std::move(unloading)},
            {.method = "POST",
             .pattern = "/update_weights_from_disk",
             .handler = std::move(updating),
             .right = http::Right::admin},
            {"GET", "/tokenizer_info", at_once(&CompletionService::tokenizer_info)},
            {"GET", "/v1/models", at_once(&CompletionService::model_list)}};
}

std::optional<http::Response> CompletionService::refusal(const std::string& model) const {
    if (model_ == nullptr) {
        return refused(503, "the model is being loaded, or generates no text");
    }
    if (!model.empty() && model != options_.model_name && adapters_.find(model) == nullptr) {
        std::vector<std::string> names = adapters_.names();
        names.insert(names.begin(), options_.model_name);
        return refused(404, "there is no model '" + model + "': this server has " + joined(names), "model",
                       "model_not_found");
    }
    return std::nullopt;
}

Result<void> CompletionService::encode_prompts(CompletionRequest& request) const {
    for (Prompt& prompt : request.prompts) {
        if (!prompt.text) {
            continue;
        }
        if (text_->tokenizer == nullptr) {
            return invalid_input("prompt is a text, and the model's folder has no tokenizer.json: send token ids");
        }
        try {
            prompt.ids = request.add_special_tokens ? text_->tokenizer->encode(*prompt.text)
                                                    : text_->tokenizer->encode_bare(*prompt.text);
        } catch (const ErrorException& error) {
            return error.error();
        }
    }
    return {};
}

std::uint32_t CompletionService::tokens_left(const CompletionRequest& request) const {
    const std::uint64_t most = std::min<std::uint64_t>(model_->max_positions, limits_.max_positions);
    const std::uint64_t used = request.prompts.front().ids.size();
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(most > used ? most - used : 1, 1, kDefaultChat));
}

asio::awaitable<http::Response> CompletionService::complete(json::object body) {
    auto request = read_completion(std::move(body));
    if (!request) {
        co_return refused(request.error());
    }
    if (auto refusal_of = refusal(request->model)) {
        co_return std::move(*refusal_of);
    }
    co_return co_await answer(std::move(*request));
}

asio::awaitable<http::Response> CompletionService::answer(CompletionRequest request) {
    auto encoded = co_await run_on(encode_, [this, &request] { return encode_prompts(request); });
    if (!encoded) {
        co_return refused(400, encoded.error().message, "prompt");
    }
    CompletionPlan plan;
    plan.id = (request.chat ? "chatcmpl-" : "cmpl-") + random_hex(2);
    plan.created = static_cast<std::int64_t>(unix_now());
    plan.model = request.model.empty() ? options_.model_name : request.model;
    if (auto refusal_of = refusal(plan.model)) {
        co_return std::move(*refusal_of);  // the adapter was unloaded meanwhile
    }
    plan.adapter = adapters_.find(plan.model);
    if (plan.adapter == nullptr) {
        plan.adapter = adapters_.weights().model;
        plan.weight_version = adapters_.weights().version;
    }
    plan.end_ids = model_->end_ids;
    if (text_->tokenizer != nullptr && text_->tokenizer->end_of_text()) {
        plan.end_ids.push_back(*text_->tokenizer->end_of_text());
    }
    plan.max_tokens = request.max_tokens.value_or(request.chat ? tokens_left(request) : kDefaultCompletion);
    const std::uint64_t seed = request.seed ? *request.seed : random_seed();
    plan.asked = std::move(request);
    const std::uint64_t bytes = bytes_of(plan);
    if (bytes > options_.max_answer_bytes) {
        co_return refused(400, "the answer could take " + std::to_string(bytes) + " bytes, the server's limit is " +
                                   std::to_string(options_.max_answer_bytes) +
                                   ": ask for fewer tokens, answers or logprobs");
    }
    std::vector<models::GenerationRequest> sequences = plan.sequences(seed);
    for (const auto& sequence : sequences) {
        const auto checked =
            models::check_generation_request(sequence, model_->vocabulary_size, model_->max_positions, limits_);
        if (!checked) {
            co_return refused(400, checked.error().message, "prompt");
        }
    }
    auto held = memory_.hold(bytes);
    if (!held) {
        co_return refused(503, "answers in progress take all the memory that the server allows");
    }
    std::unique_ptr<GenerationQueue::Answers> news = queue_.submit(std::move(sequences));
    if (news == nullptr) {
        co_return refused(503, "the queue is full");
    }
    CompletionAnswer made(std::move(plan), text_->tokenizer.get());
    http::Response response;
    if (made.streams()) {
        response.content_type = "text/event-stream";
        response.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}};
        response.stream = std::make_unique<CompletionStream>(std::move(news), std::move(made), std::move(held));
        co_return response;
    }
    while (!news->over() && !made.failed()) {
        for (const std::size_t sequence : made.take(co_await news->next())) {
            news->end(sequence);
        }
    }
    if (news->failure()) {
        co_return refused(*news->failure());
    }
    if (made.failed()) {
        co_return refused(500, CompletionStream::kNotFinite);
    }
    response.body = co_await run_on(encode_, [&made] { return to_text(made.whole()); });
    response.until_sent = std::move(held);
    co_return response;
}

asio::awaitable<std::optional<http::Response>> CompletionService::render(CompletionRequest& request) {
    while (rendering_ >= kMaxRenderings) {
        co_await rendered_.wait();
    }
    ++rendering_;
    const ScopeExit counted([this] {
        --rendering_;
        rendered_.notify();
    });
    Result<std::string> text = co_await render_chat(*text_, request);
    if (!text) {
        const bool theirs = text.error().kind == ErrorKind::invalid_input;
        co_return refused(theirs ? 400 : 501, text.error().message, "messages");
    }
    request.prompts.push_back({.text = std::move(*text)});
    co_return std::nullopt;
}

asio::awaitable<http::Response> CompletionService::tokenize(http::Request request) {
    auto body = read_body(request.body);
    if (!body) {
        co_return refused(400, body.error().message);
    }
    auto asked = read_tokenize(std::move(*body));
    if (!asked) {
        co_return refused(asked.error());
    }
    if (auto refusal_of = refusal(asked->model)) {
        co_return std::move(*refusal_of);
    }
    if (asked->chat) {
        if (auto failure = co_await render(*asked)) {
            co_return std::move(*failure);
        }
    }
    auto encoded = co_await run_on(encode_, [this, &asked] { return encode_prompts(*asked); });
    if (!encoded) {
        co_return refused(400, encoded.error().message, "prompt");
    }
    const auto& ids = asked->prompts.front().ids;
    co_return object_answer(200, {{"count", ids.size()},
                                  {"max_model_len", model_->max_positions},
                                  {"tokens", json::array(ids.begin(), ids.end())}});
}

asio::awaitable<http::Response> CompletionService::detokenize(http::Request request) {
    auto body = read_body(request.body);
    if (!body) {
        co_return refused(400, body.error().message);
    }
    auto ids = read_detokenize(std::move(*body));
    if (!ids) {
        co_return refused(ids.error());
    }
    if (auto refusal_of = refusal("")) {
        co_return std::move(*refusal_of);
    }
    if (text_->tokenizer == nullptr) {
        co_return refused(400, "the model's folder has no tokenizer.json");
    }
    auto decode = [this, &ids] { return to_lossy_utf8(text_->tokenizer->decode(*ids)); };
    std::string text = co_await run_on(encode_, std::move(decode));
    co_return object_answer(200, {{"prompt", std::move(text)}});
}

asio::awaitable<http::Response> CompletionService::chat(http::Request request) {
    auto body = read_body(request.body);
    if (!body) {
        co_return refused(400, body.error().message);
    }
    auto asked = read_chat(std::move(*body));
    if (!asked) {
        co_return refused(asked.error());
    }
    if (auto refusal_of = refusal(asked->model)) {
        co_return std::move(*refusal_of);
    }
    if (auto failure = co_await render(*asked)) {
        co_return std::move(*failure);
    }
    co_return co_await answer(std::move(*asked));
}

asio::awaitable<http::Response> CompletionService::load_adapter(http::Request request) {
    auto body = read_body(request.body);
    auto asked = body ? read_adapter(*body, true) : Read<AdapterRequest>(api::Violation{"", "", body.error().message});
    if (!asked) {
        co_return refused(asked.error());
    }
    if (auto refusal_of = refusal("")) {
        co_return std::move(*refusal_of);
    }
    if (asked->name == options_.model_name) {
        co_return refused(400, "lora_name: '" + asked->name + "' is the model itself", "lora_name");
    }
    const Result<void> loaded = co_await adapters_.load(asked->name, asked->folder);
    if (!loaded) {
        co_return refused(400, loaded.error().message, "lora_path");
    }
    log::info("teacher", "adapter '" + asked->name + "' is loaded from " + asked->folder);
    http::Response response;
    response.content_type = "text/plain; charset=utf-8";
    response.body = "Success: LoRA adapter '" + asked->name + "' added successfully.";
    co_return response;
}

asio::awaitable<http::Response> CompletionService::unload_adapter(http::Request request) {
    auto body = read_body(request.body);
    auto asked = body ? read_adapter(*body, false) : Read<AdapterRequest>(api::Violation{"", "", body.error().message});
    if (!asked) {
        co_return refused(asked.error());
    }
    if (!adapters_.unload(asked->name)) {
        co_return refused(404, "there is no adapter '" + asked->name + "'", "lora_name", "model_not_found");
    }
    log::info("teacher", "adapter '" + asked->name + "' is unloaded");
    http::Response response;
    response.content_type = "text/plain; charset=utf-8";
    response.body = "Success: LoRA adapter '" + asked->name + "' removed successfully.";
    co_return response;
}

asio::awaitable<http::Response> CompletionService::update_weights(http::Request request) {
    auto body = read_body(request.body);
    auto asked = body ? read_weights(*body) : Read<WeightsRequest>(api::Violation{"", "", body.error().message});
    if (!asked) {
        co_return refused(asked.error());
    }
    if (auto refusal_of = refusal("")) {
        co_return std::move(*refusal_of);
    }
    const Result<void> replaced = co_await adapters_.replace_weights(asked->folder, asked->version);
    if (!replaced) {
        co_return refused(400, replaced.error().message, "model_path");
    }
    log::info("teacher", "answers are written with the weights of " + asked->folder);
    co_return object_answer(200, {{"success", true}, {"message", "Succeeded to update model weights."}});
}

http::Response CompletionService::tokenizer_info() const {
    if (auto refusal_of = refusal("")) {
        return std::move(*refusal_of);
    }
    json::object info = text_->config;
    if (text_->chat_template) {
        info["chat_template"] = *text_->chat_template;
    }
    return object_answer(200, info);
}

http::Response CompletionService::model_list() const {
    json::array list;
    const auto add = [&](const std::string& name) -> json::object& {
        json::object& model = list.emplace_back(json::object()).get_object();
        model = {{"id", name}, {"object", "model"}, {"created", 0}, {"owned_by", "distilld"}};
        if (model_ != nullptr) {
            model["max_model_len"] = model_->max_positions;
        }
        return model;
    };
    add(options_.model_name);
    for (const std::string& name : adapters_.names()) {
        add(name)["parent"] = options_.model_name;
    }
    return object_answer(200, {{"object", "list"}, {"data", std::move(list)}});
}

}  // namespace distilld::teacher

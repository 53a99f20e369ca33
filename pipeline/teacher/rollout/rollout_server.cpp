#include "pipeline/teacher/rollout/rollout_server.hpp"

#include <algorithm>
#include <utility>

#include "base/join.hpp"
#include "base/json_text.hpp"
#include "base/scope_exit.hpp"
#include "base/time.hpp"
#include "net/http_failure.hpp"
#include "pipeline/teacher/protocols/prompt_scoring.hpp"
#include "pipeline/teacher/protocols/server_signs.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

constexpr std::uint32_t kProbeTokens = 8;
constexpr std::uint64_t kMaxPage = std::uint64_t{1} << 20U;
constexpr std::chrono::seconds kUnloadLimit{5};
constexpr std::chrono::seconds kLoadLimit{60};

std::chrono::seconds limit_of(const RolloutSpec& spec) {
    return std::chrono::ceil<std::chrono::seconds>(from_seconds(spec.timeout_secs));
}

}  // namespace

RolloutServer::RolloutServer(asio::any_io_executor io, std::unique_ptr<TeacherEndpoint> endpoint,
                             const RolloutSpec& spec, const RolloutServersOptions& options)
    : spec_(spec),
      options_(options),
      at_(std::move(endpoint)),
      other_weights_(options.whole ? std::make_shared<std::atomic<bool>>(false) : nullptr),
      changed_(io),
      tidying_(std::move(io)) {}

Result<std::string> RolloutServer::page(std::string_view target) const {
    const EndpointUrl& url = at_->url();
    const auto ours = std::ranges::find_if(
        kRolloutDialects, [&url](const RolloutDialect& dialect) { return url.path.ends_with(dialect.answers); });
    return page_beside(url, ours == kRolloutDialects.end() ? dialect_->answers : ours->answers, target);
}

FetchError RolloutServer::unusable(const std::string& why) const {
    return {FailureKind::rejected, name() + ": " + why, std::nullopt};
}

asio::awaitable<FetchResult<HttpResponse>> RolloutServer::ask(HttpRequest request, std::chrono::seconds limit) {
    request.response_limit = std::max(request.response_limit, kMaxPage);
    const std::string page = at_->page(request.target);
    auto response = co_await at_->send(std::move(request), limit);
    if (response && response->status / 100 != 2) {
        co_return failure_of_status(page, *response);
    }
    co_return response;
}

asio::awaitable<FetchResult<HttpResponse>> RolloutServer::post(const char* target, boost::json::object body,
                                                               std::chrono::seconds limit) {
    const auto at = page(target);
    if (!at) {
        co_return unusable(at.error().message);
    }
    HttpRequest request;
    request.target = *at;
    request.content_type = kJsonContentType;
    request.body = std::make_shared<const std::string>(to_text(body));
    co_return co_await ask(std::move(request), limit);
}

asio::awaitable<FetchResult<void>> RolloutServer::greet() {
    const auto models_page = page("/v1/models");
    if (!models_page) {
        co_return unusable(models_page.error().message);
    }
    const auto response = co_await ask(make_get(*models_page), kLoadLimit);
    if (!response) {
        co_return response.error();
    }
    const auto models = parse_model_list(body_text(*response));
    if (!models || models->empty()) {
        co_return unusable("/v1/models does not name a model");
    }
    const std::string& kind = models->front().owner;
    const auto known = value_of(kRolloutProtocolNames, kind);
    if (!known || (spec_.protocol != RolloutProtocol::automatic && *known != spec_.protocol)) {
        co_return unusable("is a server of '" + kind + "', as /v1/models says, and /rollout/protocol is " +
                           name_of(kRolloutProtocolNames, spec_.protocol) + " (of " +
                           joined(names_of(kRolloutProtocolNames)) + ")");
    }
    dialect_ = &dialect_of(*known);
    if (options_.whole && dialect_->update == nullptr) {
        co_return unusable("takes adapters alone while it runs: give /student/lora, or endpoints of another kind");
    }
    base_ = models->front().id;
    const auto answers = page(dialect_->answers);
    if (!answers) {
        co_return unusable(answers.error().message);
    }
    codec_ =
        std::make_shared<RolloutCodec>(RolloutCodecOptions{*answers, options_.name, options_.plan, spec_.max_tokens,
                                                           spec_.temperature, spec_.top_p, dialect_, other_weights_});
    at_->set_codec(codec_);
    for (const auto& model : *models) {
        if (!options_.whole && model.id.starts_with(options_.name_of_run) && !model.id.starts_with(options_.name)) {
            static_cast<void>(co_await post(dialect_->unload, {{"lora_name", model.id}}, kUnloadLimit));
        }
    }
    co_return FetchResult<void>();
}

asio::awaitable<FetchResult<void>> RolloutServer::give(std::string folder) {
    const std::string path = (options_.folder / folder).string();
    const auto done =
        options_.whole ? co_await post(dialect_->update,
                                       {{"model_path", path}, {"weight_version", named(folder)}, {"flush_cache", true}},
                                       limit_of(spec_))
                       : co_await post(dialect_->load, {{"lora_name", named(folder)}, {"lora_path", path}}, kLoadLimit);
    // An earlier answer may have been lost.
    if (done || (!options_.whole && done.error().message.find("already") != std::string::npos)) {
        co_return FetchResult<void>();
    }
    FetchError failure = done.error();
    failure.message += "; the server must see the folder " + options_.folder.string();
    if (!options_.whole) {
        failure.message +=
            ", and hold " + std::to_string(options_.plan.staleness + 2) + " adapters (" + kHowServersTakeAdapters + ")";
    }
    co_return failure;
}

asio::awaitable<void> RolloutServer::take_away(std::string folder) {
    if (!options_.whole) {
        // It is only tidying up.
        static_cast<void>(co_await post(dialect_->unload, {{"lora_name", named(folder)}}, kUnloadLimit));
    }
}

asio::awaitable<FetchResult<Rollout>> RolloutServer::write(std::string folder, std::uint64_t seed, double temperature) {
    const std::string own = dialect_->native || options_.whole ? std::string() : base_;
    HttpRequest request = codec_->request(folder.empty() || options_.whole ? own : named(folder), options_.probe_prompt,
                                          seed, temperature, std::min(kProbeTokens, spec_.max_tokens));
    const auto response = co_await ask(std::move(request), limit_of(spec_));
    if (!response) {
        co_return response.error();
    }
    const Result<ToldRollout> told = codec_->read(*response, kProbeTokens);
    if (!told) {
        co_return unusable(told.error().message);
    }
    if (options_.whole && !folder.empty() && told->weights != named(folder)) {
        co_return unusable("was given the weights '" + named(folder) + "', and its answer is of '" + told->weights +
                           "' (weight_version)");
    }
    const std::uint32_t vocabulary = at_->settings().vocabulary;
    const auto too_large = std::ranges::find_if(told->rollout.ids, [vocabulary](std::int32_t id) {
        return id < 0 || static_cast<std::uint32_t>(id) >= vocabulary;
    });
    if (too_large != told->rollout.ids.end()) {
        co_return unusable("writes token " + std::to_string(*too_large) + ", outside the student's vocabulary of " +
                           std::to_string(vocabulary) + ": it serves another model");
    }
    co_return told->rollout;
}

asio::awaitable<FetchResult<void>> RolloutServer::load(std::uint64_t version) {
    while (loading_.contains(version)) {
        co_await changed_.wait();
    }
    if (loaded_.contains(version)) {
        co_return FetchResult<void>();
    }
    loading_.insert(version);
    const ScopeExit ended([this, version] {
        loading_.erase(version);
        changed_.notify();
    });
    while (tidying_.size() > 0) {
        co_await tidying_.changed().wait();  // the server must have room
    }
    asked_for_.insert(version);
    // The student has done `version` steps, so no step needs what the last of them was written with. It is taken away
    // while this one is loaded, or the next load would have to wait for both.
    while (*asked_for_.begin() + options_.plan.staleness < version) {
        const std::uint64_t oldest = *asked_for_.begin();
        asked_for_.erase(oldest);
        loaded_.erase(oldest);
        if (!tidying_.spawn(take_away("v" + std::to_string(oldest)))) {
            break;  // the run has ended
        }
    }
    auto loaded = co_await give("v" + std::to_string(version));
    if (loaded) {
        loaded_.insert(version);
    }
    co_return loaded;
}

asio::awaitable<FetchResult<void>> RolloutServer::replace(std::uint64_t version) {
    if (other_weights_->exchange(false)) {
        loaded_.clear();
    }
    while (!loading_.empty() || (!loaded_.contains(version) && writing_ > 0)) {
        co_await changed_.wait();
    }
    if (loaded_.contains(version)) {
        co_return FetchResult<void>();
    }
    loading_.insert(version);
    const ScopeExit ended([this, version] {
        loading_.erase(version);
        changed_.notify();
    });
    loaded_.clear();
    auto given = co_await give("v" + std::to_string(version));
    if (given) {
        loaded_.insert(version);
    }
    co_return given;
}

asio::awaitable<FetchResult<EncodedAnswer>> RolloutServer::answer(std::shared_ptr<const TokenBatch> tokens,
                                                                  std::chrono::nanoseconds deadline) {
    const std::uint64_t version = options_.plan.version_of(tokens->number);
    for (bool again = false;; again = true) {
        const FetchResult<void> has = options_.whole ? co_await replace(version) : co_await load(version);
        if (!has) {
            co_return has.error();
        }
        ++writing_;
        const ScopeExit written([this] {
            --writing_;
            changed_.notify();
        });
        auto answer = co_await at_->request(tokens, deadline);
        // A server that was started again has lost its adapters.
        if (answer || again || options_.whole || answer.error().kind != FailureKind::not_found) {
            co_return answer;
        }
        loaded_.clear();
    }
}

asio::awaitable<void> RolloutServer::settle() {
    co_await tidying_.join();
    for (const std::uint64_t version : std::exchange(asked_for_, {})) {
        co_await take_away("v" + std::to_string(version));
    }
}

}  // namespace distilld

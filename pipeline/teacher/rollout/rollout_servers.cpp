#include "pipeline/teacher/rollout/rollout_servers.hpp"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/join.hpp"
#include "base/json_text.hpp"
#include "base/scope_exit.hpp"
#include "base/time.hpp"
#include "net/http_failure.hpp"
#include "pipeline/async/abort.hpp"
#include "pipeline/async/condition.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/async/tuple.hpp"
#include "pipeline/teacher/endpoint_access.hpp"
#include "pipeline/teacher/protocols/prompt_scoring.hpp"
#include "pipeline/teacher/protocols/server_signs.hpp"
#include "pipeline/teacher/rollout/rollout_codec.hpp"
#include "pipeline/teacher/teacher_endpoint.hpp"
#include "pipeline/teacher/teacher_key.hpp"

namespace distilld {

namespace asio = boost::asio;
namespace fs = std::filesystem;

namespace {

constexpr const char* kCompletions = "/v1/completions";
constexpr std::uint32_t kProbeTokens = 8;
constexpr std::uint32_t kProbeCompany = 4;  ///< requests beside the one that must repeat
constexpr std::uint64_t kProbeSeed = 7;
constexpr std::uint64_t kMaxPage = std::uint64_t{1} << 20U;
constexpr std::chrono::seconds kProbePause{1};
constexpr std::chrono::seconds kUnloadLimit{5};
constexpr std::chrono::seconds kLoadLimit{60};
constexpr const char* kProbeAdapter = "probe";  ///< its folder, and the end of its name

struct Server {
    std::unique_ptr<TeacherEndpoint> at;
    std::shared_ptr<TrafficCounters> traffic;
    std::string load;  ///< targets
    std::string unload;
    std::string models;
    bool passed = false;  ///< the probe
    bool probing = false;
    std::set<std::uint64_t> loaded{};  ///< versions
    std::set<std::uint64_t> loading{};
};

FetchError unusable(const TeacherEndpoint& at, const std::string& why) {
    return {FailureKind::rejected, at.name() + ": " + why, std::nullopt};
}

std::string listed(const std::vector<std::int32_t>& ids) {
    std::string text;
    for (const std::int32_t id : ids) {
        text += (text.empty() ? "" : " ") + std::to_string(id);
    }
    return text;
}

class RolloutServers final : public TeacherSource {
  public:
    RolloutServers(asio::any_io_executor io, asio::any_io_executor decode, RolloutSpec spec,
                   RolloutServersOptions options)
        : io_(io),
          spec_(std::move(spec)),
          options_(std::move(options)),
          resolver_(io, options_.lookup, std::chrono::seconds(10), options_.hosts),
          settings_(std::make_shared<TeacherSettings>()),
          changed_(io) {
        settings_->max_response_bytes = std::uint64_t{1} << 30U;
        settings_->buffers = std::make_shared<BufferPool>(std::size_t{16} << 20U);
        settings_->decode = std::move(decode);
    }

    Result<void> set_up() {
        auto bearer = read_bearer(spec_.api_key_env, {}, "/rollout");
        if (!bearer) {
            return bearer.error();
        }
        const auto access = make_endpoint_access({.section = "/rollout",
                                                  .endpoints = spec_.endpoints,
                                                  .default_path = kCompletions,
                                                  .ca_file = spec_.ca_file,
                                                  .bearer = std::move(*bearer)});
        if (!access) {
            return access.error();
        }
        for (const EndpointUrl& url : access->urls) {
            Server server;
            for (auto [page, target] : {std::pair("/v1/load_lora_adapter", &server.load),
                                        {"/v1/unload_lora_adapter", &server.unload},
                                        {"/v1/models", &server.models}}) {
                const Result<std::string> beside = page_beside(url, kCompletions, page);
                if (!beside) {
                    return at_endpoint("/rollout", servers_.size(), beside.error());
                }
                *target = *beside;
            }
            server.traffic = std::make_shared<TrafficCounters>(all_traffic_);
            server.at = std::make_unique<TeacherEndpoint>(io_, resolver_, url, nullptr, access->tls, server.traffic,
                                                          access->pool, settings_);
            codec_ = std::make_shared<RolloutCodec>(RolloutCodecOptions{
                url.target(), options_.name, options_.plan, spec_.max_tokens, spec_.temperature, spec_.top_p});
            server.at->set_codec(codec_);
            servers_.push_back(std::move(server));
        }
        return {};
    }

    std::size_t endpoint_count() const override { return servers_.size(); }
    const std::string& endpoint_name(std::size_t endpoint) const override { return servers_.at(endpoint).at->name(); }
    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        return codec_->answer_size(rows, columns);
    }
    std::uint64_t bytes_received() const override { return all_traffic_->bytes_received.load(); }
    WireTraffic traffic(std::size_t endpoint) const override {
        const TrafficCounters& seen = *servers_.at(endpoint).traffic;
        return {seen.bytes_sent.load(), seen.bytes_received.load()};
    }
    void close() override {
        for (const Server& server : servers_) {
            server.at->close();
        }
    }

    /// Waits for the first endpoint as long as for an outage.
    asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t vocabulary_size) override {
        settings_->vocabulary = vocabulary_size;
        TeacherInfo info;
        std::string last;
        std::string told;
        const auto give_up = std::chrono::steady_clock::now() + from_seconds(spec_.patience_secs);
        try {
            while (info.absent.size() + info.refused.size() == servers_.size() || last.empty()) {
                info.absent.clear();
                info.refused.clear();
                for (std::size_t i = 0; i < servers_.size(); ++i) {
                    const FetchResult<void> passed = co_await pass(servers_[i]);
                    if (passed) {
                        continue;
                    }
                    last = passed.error().message;
                    (is_outage(passed.error().kind) ? info.absent : info.refused).push_back(i);
                }
                if (info.absent.size() + info.refused.size() < servers_.size()) {
                    break;
                }
                if (info.absent.empty() || std::chrono::steady_clock::now() >= give_up) {
                    co_return teacher_error(last);
                }
                if (last != told) {
                    options_.on_warning("waiting for a server: " + last);
                    told = last;
                }
                asio::steady_timer pause(io_, kProbePause);
                co_await pause.async_wait(asio::use_awaitable);
            }
        } catch (const boost::system::system_error& failure) {
            if (!is_abort(failure.code())) {
                throw;
            }
            co_return Error{ErrorKind::cancelled, "the probe of the rollout servers was cancelled"};
        }
        if (!last.empty()) {
            options_.on_warning(last);
        }
        info.deterministic = repeats_;
        info.description = codec_->description();
        co_return info;
    }

    asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t endpoint, std::shared_ptr<const TokenBatch> tokens,
                                                      std::chrono::nanoseconds deadline) override {
        if (options_.kept && options_.kept->has(tokens->number)) {
            co_return kept_answer(options_.kept, std::move(tokens));
        }
        if (wants_no_answer(*tokens)) {
            co_return EncodedAnswer(targets_of(std::vector<Rollout>(tokens->rows), tokens->lengths, tokens->columns));
        }
        Server& server = servers_.at(endpoint);
        const std::uint64_t version = options_.plan.version_of(tokens->number);
        for (bool again = false;; again = true) {
            if (const FetchResult<void> passed = co_await pass(server); !passed) {
                co_return passed.error();
            }
            if (const FetchResult<void> loaded = co_await load(server, version); !loaded) {
                co_return loaded.error();
            }
            auto answer = co_await server.at->request(tokens, deadline);
            // A server that was started again has lost its adapters.
            if (answer || again || answer.error().kind != FailureKind::not_found) {
                co_return answer;
            }
            server.loaded.clear();
        }
    }

    asio::awaitable<void> settle() override {
        for (Server& server : servers_) {
            for (const std::uint64_t version : std::exchange(server.loaded, {})) {
                co_await unload(server, codec_->model(version));
            }
        }
    }

  private:
    static std::shared_ptr<const std::string> body_of(boost::json::object fields) {
        return std::make_shared<const std::string>(to_text(fields));
    }

    /// Sends a request to a page of the server, and returns the answer to a good one.
    asio::awaitable<FetchResult<HttpResponse>> ask(Server& server, HttpRequest request, std::chrono::seconds limit) {
        request.response_limit = std::max(request.response_limit, kMaxPage);
        const std::string page = server.at->page(request.target);
        auto response = co_await server.at->send(std::move(request), limit);
        if (response && response->status / 100 != 2) {
            co_return failure_of_status(page, *response);
        }
        co_return response;
    }

    asio::awaitable<FetchResult<void>> load_adapter(Server& server, const std::string& name, const fs::path& folder) {
        HttpRequest request;
        request.target = server.load;
        request.content_type = kJsonContentType;
        request.body = body_of({{"lora_name", name}, {"lora_path", folder.string()}});
        auto response = co_await ask(server, std::move(request), kLoadLimit);
        if (response || response.error().message.find("already") != std::string::npos) {  // an earlier answer was lost
            co_return FetchResult<void>();
        }
        FetchError failure = response.error();
        failure.message += "; the server must see the folder " + folder.parent_path().string() + ", and hold " +
                           std::to_string(options_.plan.staleness + 2) + " adapters (" + kHowServersTakeAdapters + ")";
        co_return failure;
    }

    asio::awaitable<void> unload(Server& server, std::string name) {
        HttpRequest request;
        request.target = server.unload;
        request.content_type = kJsonContentType;
        request.body = body_of({{"lora_name", name}});
        static_cast<void>(co_await ask(server, std::move(request), kUnloadLimit));  // it is only tidying up
    }

    asio::awaitable<FetchResult<void>> load(Server& server, std::uint64_t version) {
        while (server.loading.contains(version)) {
            co_await changed_.wait();
        }
        if (server.loaded.contains(version)) {
            co_return FetchResult<void>();
        }
        server.loading.insert(version);
        const ScopeExit ended([&] {
            server.loading.erase(version);
            changed_.notify();
        });
        auto loaded = co_await load_adapter(server, codec_->model(version), folder_of(version));
        if (!loaded) {
            co_return loaded;
        }
        server.loaded.insert(version);
        while (*server.loaded.begin() + options_.plan.staleness + 2 <= version) {
            const std::uint64_t oldest = *server.loaded.begin();
            server.loaded.erase(server.loaded.begin());
            co_await unload(server, codec_->model(oldest));
        }
        co_return loaded;
    }

    [[nodiscard]] fs::path folder_of(std::uint64_t version) const {
        return options_.folder / ("v" + std::to_string(version));
    }

    /// The probe, once.
    asio::awaitable<FetchResult<void>> pass(Server& server) {
        while (server.probing) {
            co_await changed_.wait();
        }
        if (server.passed) {
            co_return FetchResult<void>();
        }
        server.probing = true;
        const ScopeExit ended([&] {
            server.probing = false;
            changed_.notify();
        });
        const std::string adapter = options_.name + "-" + kProbeAdapter;
        auto loaded = co_await load_adapter(server, adapter, options_.folder / kProbeAdapter);
        if (!loaded) {
            co_return loaded;
        }
        auto good = co_await examine(server, adapter);
        co_await unload(server, adapter);
        server.passed = static_cast<bool>(good);
        co_return good;
    }

    asio::awaitable<FetchResult<Rollout>> answer_of(Server& server, std::string model, std::uint64_t seed,
                                                    double temperature) {
        const auto limit = std::chrono::ceil<std::chrono::seconds>(from_seconds(spec_.timeout_secs));
        HttpRequest request =
            codec_->request(model, options_.probe_prompt, seed, temperature, std::min(kProbeTokens, spec_.max_tokens));
        const auto response = co_await ask(server, std::move(request), limit);
        if (!response) {
            co_return response.error();
        }
        const Result<Rollout> rollout = codec_->read(*response, kProbeTokens);
        if (!rollout) {
            co_return unusable(*server.at, rollout.error().message);
        }
        const auto too_large = std::ranges::find_if(
            rollout->ids, [&](std::int32_t id) { return id < 0 || std::uint32_t(id) >= settings_->vocabulary; });
        if (too_large != rollout->ids.end()) {
            co_return unusable(*server.at, "writes token " + std::to_string(*too_large) +
                                               ", outside the student's vocabulary of " +
                                               std::to_string(settings_->vocabulary) + ": it serves another model");
        }
        co_return *rollout;
    }

    asio::awaitable<void> keep_answer(Server& server, std::string model, std::uint64_t seed,
                                      std::optional<FetchResult<Rollout>>& answer) {
        answer = co_await answer_of(server, std::move(model), seed, 1.0);
    }

    asio::awaitable<FetchResult<Rollout>> answer_among_others(Server& server, std::string base, std::string adapter) {
        std::vector<std::optional<FetchResult<Rollout>>> answers(1 + kProbeCompany);
        TaskGroup group(io_);
        for (std::uint32_t i = 0; i < answers.size(); ++i) {
            const std::uint64_t seed = i == 0 ? kProbeSeed : kProbeSeed + i;
            if (!group.spawn(keep_answer(server, i % 2 == 0 ? adapter : base, seed, answers[i]))) {
                break;  // a request has thrown, which join() tells
            }
        }
        co_await group.join();
        if (!answers.front()) {
            throw boost::system::system_error(asio::error::operation_aborted);
        }
        co_return *answers.front();
    }

    asio::awaitable<FetchResult<std::string>> base_model(Server& server) {
        const auto response = co_await ask(server, make_get(server.models), kLoadLimit);
        if (!response) {
            co_return response.error();
        }
        const auto models = parse_model_list(body_text(*response));
        if (!models || models->empty()) {
            co_return unusable(*server.at, "/v1/models does not name a model");
        }
        const std::string& kind = models->front().owner;
        const std::string expected = name_of(kRolloutProtocolNames, spec_.protocol);
        const bool any = spec_.protocol == RolloutProtocol::automatic && value_of(kRolloutProtocolNames, kind);
        if (!any && kind != expected) {
            co_return unusable(*server.at, "is a server of '" + kind +
                                               "', as /v1/models says, and /rollout/protocol is " + expected + " (of " +
                                               joined(names_of(kRolloutProtocolNames)) + ")");
        }
        co_return models->front().id;
    }

    asio::awaitable<FetchResult<void>> examine(Server& server, const std::string& adapter) {
        const auto base = co_await base_model(server);
        if (!base) {
            co_return base.error();
        }
        const auto of_base = co_await answer_of(server, *base, kProbeSeed, 0);
        if (!of_base) {
            co_return of_base.error();
        }
        const auto of_adapter = co_await answer_of(server, adapter, kProbeSeed, 0);
        if (!of_adapter) {
            co_return of_adapter.error();
        }
        if (of_base->ids == of_adapter->ids && of_base->log_probabilities == of_adapter->log_probabilities) {
            co_return unusable(*server.at,
                               "an adapter that must change the answers does not: adapters do not reach the model, and "
                               "the student would never write for itself");
        }
        const auto alone = co_await answer_of(server, adapter, kProbeSeed, 1.0);
        if (!alone) {
            co_return alone.error();
        }
        const auto among_others = co_await answer_among_others(server, *base, adapter);
        if (!among_others) {
            co_return among_others.error();
        }
        co_return judge(server, *alone, *among_others);
    }

    FetchResult<void> judge(const Server& server, const Rollout& alone, const Rollout& among_others) {
        std::string why;
        if (alone.ids != among_others.ids) {
            why = "is not reproducible: the same seed wrote " + listed(alone.ids) + " alone and " +
                  listed(among_others.ids) + " among other requests";
        } else if (reference_ && *reference_ != alone.ids) {
            why = "is not reproducible: the same seed wrote " + listed(alone.ids) + " here and " + listed(*reference_) +
                  " at " + reference_name_;
        }
        if (!reference_) {
            reference_ = alone.ids;
            reference_name_ = server.at->name();
        }
        if (why.empty()) {
            return {};
        }
        repeats_ = false;
        if (spec_.require_repeatable) {
            return unusable(*server.at, why +
                                            " (/rollout/require_repeatable: false accepts that, and weights then "
                                            "depend on chance)");
        }
        options_.on_warning(server.at->name() + ": " + why);
        return {};
    }

    asio::any_io_executor io_;
    RolloutSpec spec_;
    RolloutServersOptions options_;
    HostResolver resolver_;
    std::shared_ptr<TeacherSettings> settings_;
    std::shared_ptr<TrafficCounters> all_traffic_ = std::make_shared<TrafficCounters>();
    std::shared_ptr<const RolloutCodec> codec_;
    std::vector<Server> servers_;
    Condition changed_;                                   // a load or a probe has ended
    std::optional<std::vector<std::int32_t>> reference_;  // what the first endpoint wrote in the probe
    std::string reference_name_;
    bool repeats_ = true;
};

}  // namespace

Result<std::unique_ptr<TeacherSource>> make_rollout_servers(asio::any_io_executor io, asio::any_io_executor decode,
                                                            const RolloutSpec& spec, RolloutServersOptions options) {
    auto servers = std::make_unique<RolloutServers>(std::move(io), std::move(decode), spec, std::move(options));
    if (Result<void> ready = servers->set_up(); !ready) {
        return ready.error();
    }
    return std::unique_ptr<TeacherSource>(std::move(servers));
}

}  // namespace distilld

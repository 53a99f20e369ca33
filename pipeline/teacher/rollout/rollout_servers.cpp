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
#include "pipeline/teacher/rollout/rollout_server.hpp"
#include "pipeline/teacher/teacher_endpoint.hpp"
#include "pipeline/teacher/teacher_key.hpp"

namespace distilld {

namespace asio = boost::asio;
namespace fs = std::filesystem;

namespace {

constexpr std::uint32_t kProbeCompany = 4;  ///< requests beside the one that must repeat
constexpr std::uint64_t kProbeSeed = 7;
constexpr std::chrono::seconds kProbePause{1};
constexpr const char* kFirst = "first";  ///< folders
constexpr const char* kProbe = "probe";

struct Server {
    std::unique_ptr<RolloutServer> at;
    std::shared_ptr<TrafficCounters> traffic;
    bool passed = false;  ///< the probe
    bool probing = false;
};

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
                                                  .default_path = dialect_of(guess()).answers,
                                                  .ca_file = spec_.ca_file,
                                                  .bearer = std::move(*bearer)});
        if (!access) {
            return access.error();
        }
        for (const EndpointUrl& url : access->urls) {
            Server server;
            server.traffic = std::make_shared<TrafficCounters>(all_traffic_);
            auto endpoint = std::make_unique<TeacherEndpoint>(io_, resolver_, url, nullptr, access->tls, server.traffic,
                                                              access->pool, settings_);
            server.at = std::make_unique<RolloutServer>(io_, std::move(endpoint), spec_, options_);
            if (const Result<std::string> page = server.at->page("/v1/models"); !page) {
                return at_endpoint("/rollout", servers_.size(), page.error());
            }
            servers_.push_back(std::move(server));
        }
        return {};
    }

    std::size_t endpoint_count() const override { return servers_.size(); }
    const std::string& endpoint_name(std::size_t endpoint) const override { return servers_.at(endpoint).at->name(); }
    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        RolloutCodecOptions options;
        options.max_tokens = spec_.max_tokens;
        return RolloutCodec(options).answer_size(rows, columns);
    }
    std::uint64_t bytes_received() const override { return all_traffic_->bytes_received.load(); }
    WireTraffic traffic(std::size_t endpoint) const override {
        const TrafficCounters& seen = *servers_.at(endpoint).traffic;
        return {seen.bytes_sent.load(), seen.bytes_received.load()};
    }
    void close() override {
        for (const Server& server : servers_) {
            server.at->endpoint().close();
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
        info.description = "answers of the student";
        co_return info;
    }

    asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t endpoint, std::shared_ptr<const TokenBatch> tokens,
                                                      std::chrono::nanoseconds deadline) override {
        if (options_.kept && options_.kept->has(tokens->number)) {
            co_return kept_answer(options_.kept, std::move(tokens), settings_->vocabulary);
        }
        if (wants_no_answer(*tokens)) {
            co_return EncodedAnswer(targets_of(std::vector<Rollout>(tokens->rows), tokens->lengths, tokens->columns));
        }
        Server& server = servers_.at(endpoint);
        if (const FetchResult<void> passed = co_await pass(server); !passed) {
            co_return passed.error();
        }
        co_return co_await server.at->answer(std::move(tokens), deadline);
    }

    asio::awaitable<void> settle() override {
        for (Server& server : servers_) {
            co_await server.at->settle();
        }
    }

  private:
    /// Only for the path of a URL without one.
    [[nodiscard]] RolloutProtocol guess() const {
        return spec_.protocol == RolloutProtocol::automatic ? kRolloutDialects.front().protocol : spec_.protocol;
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
        auto good = co_await examine(*server.at);
        server.passed = static_cast<bool>(good);
        co_return good;
    }

    asio::awaitable<FetchResult<void>> examine(RolloutServer& server) {
        if (auto known = co_await server.greet(); !known) {
            co_return known;
        }
        // Whole weights stay, also those of an earlier probe.
        if (options_.whole) {
            if (auto given = co_await server.give(kFirst); !given) {
                co_return given;
            }
        }
        const auto before = co_await server.write(options_.whole ? kFirst : "", kProbeSeed, 0);
        if (!before) {
            co_return before.error();
        }
        if (auto given = co_await server.give(kProbe); !given) {
            co_return given;
        }
        auto good = co_await examine_probe(server, *before);
        co_await server.take_away(kProbe);
        co_return good;
    }

    asio::awaitable<FetchResult<void>> examine_probe(RolloutServer& server, const Rollout& before) {
        const auto greedy = co_await server.write(kProbe, kProbeSeed, 0);
        if (!greedy) {
            co_return greedy.error();
        }
        if (before.ids == greedy->ids && before.log_probabilities == greedy->log_probabilities) {
            co_return FetchError{FailureKind::rejected,
                                 server.name() + (options_.whole ? ": weights that" : ": an adapter that") +
                                     " must change the answers " + (options_.whole ? "do" : "does") +
                                     " not: " + (options_.whole ? "they" : "adapters") +
                                     " do not reach the model, and the student would never write for itself",
                                 std::nullopt};
        }
        const auto alone = co_await server.write(kProbe, kProbeSeed, 1.0);
        if (!alone) {
            co_return alone.error();
        }
        const auto among_others = co_await answer_among_others(server);
        if (!among_others) {
            co_return among_others.error();
        }
        co_return judge(server, *alone, *among_others);
    }

    static asio::awaitable<void> keep_answer(RolloutServer& server, std::string folder, std::uint64_t seed,
                                             std::optional<FetchResult<Rollout>>& answer) {
        answer = co_await server.write(std::move(folder), seed, 1.0);
    }

    asio::awaitable<FetchResult<Rollout>> answer_among_others(RolloutServer& server) {
        std::vector<std::optional<FetchResult<Rollout>>> answers(1 + kProbeCompany);
        TaskGroup group(io_);
        for (std::uint32_t i = 0; i < answers.size(); ++i) {
            const std::string folder = i % 2 == 0 || options_.whole ? kProbe : "";
            if (!group.spawn(keep_answer(server, folder, kProbeSeed + i, answers[i]))) {
                break;  // a request has thrown, which join() tells
            }
        }
        co_await group.join();
        if (!answers.front()) {
            throw boost::system::system_error(asio::error::operation_aborted);
        }
        co_return *answers.front();
    }

    FetchResult<void> judge(const RolloutServer& server, const Rollout& alone, const Rollout& among_others) {
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
            reference_name_ = server.name();
        }
        if (why.empty()) {
            return {};
        }
        repeats_ = false;
        if (spec_.require_repeatable) {
            return FetchError{FailureKind::rejected,
                              server.name() + ": " + why +
                                  " (docs/on-policy.md has the flags of servers that repeat; "
                                  "/rollout/require_repeatable: false accepts that, and weights then depend on chance)",
                              std::nullopt};
        }
        options_.on_warning(server.name() + ": " + why);
        return {};
    }

    asio::any_io_executor io_;
    RolloutSpec spec_;
    RolloutServersOptions options_;
    HostResolver resolver_;
    std::shared_ptr<TeacherSettings> settings_;
    std::shared_ptr<TrafficCounters> all_traffic_ = std::make_shared<TrafficCounters>();
    std::vector<Server> servers_;
    Condition changed_;                                   // a probe has ended
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

#include "pipeline/teacher/remote_teacher.hpp"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <exception>
#include <utility>
#include <vector>

#include "base/time.hpp"
#include "distilld_version.hpp"
#include "pipeline/async/abort.hpp"
#include "pipeline/async/condition.hpp"
#include "pipeline/async/deadline.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/teacher/endpoint_probe.hpp"
#include "pipeline/teacher/head_taking.hpp"
#include "pipeline/teacher/teacher_endpoint.hpp"
#include "pipeline/teacher/teacher_fingerprint.hpp"
#include "pipeline/teacher/teacher_key.hpp"
#include "pipeline/teacher/teacher_peers.hpp"
#include "pipeline/teacher/transport/http_connector.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

using Clock = std::chrono::steady_clock;

/// The error of the endpoint with this number, with its place in the job spec.
Error at_endpoint(std::size_t index, const Error& error) {
    return {error.kind, "/teacher/endpoints/" + std::to_string(index) + ": " + error.message};
}

class RemoteTeacher final : public TeacherSource {
  public:
    RemoteTeacher(asio::any_io_executor io, asio::any_io_executor decode, TeacherSpec spec,
                  RemoteTeacherOptions options)
        : io_(std::move(io)),
          options_(std::move(options)),
          resolver_(io_, options_.lookup, std::chrono::seconds(10), options_.hosts),
          settings_(std::make_shared<TeacherSettings>()) {
        settings_->spec = std::move(spec);
        settings_->max_response_bytes = options_.max_response_bytes;
        // What nobody uses counts against no window, so it must be little beside it.
        settings_->buffers = std::make_shared<BufferPool>(
            std::min<std::uint64_t>(options_.max_idle_buffer_bytes, settings_->spec.window_bytes / 10));
        if (!options_.traffic) {
            options_.traffic = std::make_shared<TrafficCounters>();
        }
        settings_->decode = std::move(decode);
    }

    Result<void> set_up() {
        const TeacherSpec& spec = settings_->spec;
        if (spec.endpoints.empty()) {
            return invalid_input("/teacher/endpoints: names no endpoint");
        }
        const TeacherProtocolRow* protocol = find_protocol(options_.protocols, spec.protocol);
        if (protocol == nullptr) {
            return invalid_input(std::string("/teacher/protocol: '") + to_string(spec.protocol) + "' is not spoken");
        }
        if (spec.targets == TargetsChoice::hidden && !protocol->has_hidden_states) {
            return invalid_input(std::string("/teacher/targets: is hidden, but protocol '") + to_string(spec.protocol) +
                                 "' has no hidden states");
        }
        HttpPoolOptions pool_options;
        pool_options.user_agent = std::string("distilld/") + kVersion;
        pool_options.idle_limit = options_.idle_limit;
        auto bearer = read_bearer(spec.api_key_env, spec.api_key_file);
        if (!bearer) {
            return bearer.error();
        }
        pool_options.bearer = std::move(*bearer);
        std::vector<EndpointUrl> urls;
        for (const std::string& text : spec.endpoints) {
            auto url = parse_endpoint_url(text, default_path_for(*protocol, spec.model));
            if (!url) {
                return at_endpoint(urls.size(), url.error());
            }
            if (protocol->complete_path != nullptr) {
                url->path = protocol->complete_path(std::move(url->path));
                url->name = url->page(url->path);
            }
            urls.push_back(std::move(*url));
        }
        // Reading the system's certificates takes tens of milliseconds: only when they are needed.
        std::shared_ptr<asio::ssl::context> tls;
        if (!spec.ca_file.empty() || std::any_of(urls.begin(), urls.end(), [](const auto& url) { return url.tls; })) {
            auto made = make_tls_client_context(spec.ca_file);
            if (!made) {
                return made.error();
            }
            tls = std::move(*made);
        }
        for (const EndpointUrl& url : urls) {
            auto adapter = protocol->make_adapter({url, spec.model, settings_->buffers});
            if (!adapter) {
                return at_endpoint(endpoints_.size(), adapter.error());
            }
            auto codec = (*adapter)->assumed_codec(settings_->wanted());
            if (!codec) {
                return codec.error();
            }
            auto traffic = std::make_shared<TrafficCounters>(options_.traffic);
            auto endpoint = std::make_unique<TeacherEndpoint>(io_, resolver_, url, std::move(*adapter), tls, traffic,
                                                              pool_options, settings_);
            endpoint->set_codec(std::move(*codec));
            Member& member = endpoints_.emplace_back();
            member.at = std::move(endpoint);
            member.traffic = std::move(traffic);
        }
        return {};
    }

    std::size_t endpoint_count() const override { return endpoints_.size(); }
    const std::string& endpoint_name(std::size_t endpoint) const override { return endpoints_.at(endpoint).at->name(); }

    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        const auto first =
            std::find_if(endpoints_.begin(), endpoints_.end(), [](const auto& one) { return !one.absent; });
        const Member& known = first == endpoints_.end() ? endpoints_.front() : *first;
        AnswerSize size = known.at->codec()->answer_size(rows, columns);
        for (const Member& member : endpoints_) {
            if (member.absent) {
                continue;  // it will be asked as the others are
            }
            size = larger_of(size, member.at->codec()->answer_size(rows, columns));
        }
        return size;
    }

    asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t endpoint, std::shared_ptr<const TokenBatch> tokens,
                                                      std::chrono::nanoseconds deadline) override {
        Member& where = endpoints_.at(endpoint);
        try {
            if (where.absent) {
                auto joining = join(where, deadline);
                const auto joined = co_await std::move(joining);
                if (!joined) {
                    co_return joined.error();
                }
            }
            auto asking = where.at->request(std::move(tokens), deadline);
            co_return co_await std::move(asking);
        } catch (const boost::system::system_error& failure) {
            if (!is_abort(failure.code())) {
                throw;
            }
        }
        co_return FetchError{FailureKind::cancelled, where.at->name() + ": cancelled", std::nullopt};
    }

    std::uint64_t bytes_received() const override { return options_.traffic->bytes_received.load(); }
    WireTraffic traffic(std::size_t endpoint) const override {
        const TrafficCounters& seen = *endpoints_.at(endpoint).traffic;
        return {seen.bytes_sent.load(), seen.bytes_received.load()};
    }

    asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t vocabulary_size) override {
        settings_->vocabulary = vocabulary_size;
        waiting_for_.clear();
        for (Member& member : endpoints_) {
            member.not_up.clear();
        }
        std::vector<std::optional<FetchResult<EndpointProbe>>> probed(endpoints_.size());
        try {
            auto probing = probe_all(probed);
            co_await std::move(probing);
            stop_waiting();
            Result<TeacherInfo> info = sum_up(probed);
            if (info && info->kind == TeacherTargets::Kind::hidden_states) {
                auto fetching = take_head(*info);
                const Result<void> taken = co_await std::move(fetching);
                if (!taken) {
                    co_return taken.error();
                }
            }
            co_return info;
        } catch (const boost::system::system_error& failure) {
            stop_waiting();
            if (!is_abort(failure.code())) {
                throw;
            }
            co_return Error{ErrorKind::cancelled, "the probe of the teacher was cancelled"};
        }
    }

    void expect_batches(std::uint32_t rows, std::uint32_t columns) override {
        options_.batch_rows = rows;
        options_.batch_columns = columns;
    }

    HeadFetchCounters head_fetch() const override { return head_.counters(); }

    void close() override {
        for (const Member& member : endpoints_) {
            member.at->close();
        }
    }

  private:
    struct Member {
        std::unique_ptr<TeacherEndpoint> at;
        std::shared_ptr<const TrafficCounters> traffic;
        bool absent = false;   ///< was not up, or did not pass, when the teacher was probed
        bool joining = false;  ///< a fetch is probing it
        std::string not_up;    ///< what it said last while the probe waited for it
    };
    using Probed = std::vector<std::optional<FetchResult<EndpointProbe>>>;  // without a value: not known in time

    [[nodiscard]] EndpointProbeOptions probe_options(std::chrono::nanoseconds patience) const {
        EndpointProbeOptions options;
        options.request_deadline = std::chrono::nanoseconds(from_seconds(settings_->spec.timeout_secs));
        options.give_up = Clock::now() + std::chrono::duration_cast<Clock::duration>(patience);
        options.max_retry_after = options_.max_retry_after;
        options.batch_rows = options_.batch_rows;
        options.batch_columns = options_.batch_columns;
        return options;
    }

    /// Says what is waited for when it is another thing than before.
    void report_waiting(const Probed& probed) {
        if (!options_.on_waiting || std::any_of(probed.begin(), probed.end(), passed)) {
            return;
        }
        std::vector<std::string> said;
        for (const Member& member : endpoints_) {
            said.push_back(member.not_up);
        }
        const std::string text = waited_for(said);
        if (text != waiting_for_) {
            waiting_for_ = text;
            options_.on_waiting(text);
        }
    }

    void stop_waiting() {
        if (!std::exchange(waiting_for_, {}).empty()) {
            options_.on_waiting({});
        }
    }

    static bool passed(const Probed::value_type& one) { return one && *one; }

    asio::awaitable<void> probe_one(std::size_t index, Probed& probed, Condition& changed) {
        EndpointProbeOptions options = probe_options(options_.start_deadline);
        options.on_not_up = [this, index, &probed](const FetchError& failure) {
            endpoints_[index].not_up = failure.message;
            report_waiting(probed);
        };
        auto probing = probe_endpoint(*endpoints_[index].at, std::move(options));
        try {
            probed[index] = co_await std::move(probing);
        } catch (const boost::system::system_error& failure) {
            if (is_abort(failure.code())) {
                throw;
            }
            probed[index] = FetchError{FailureKind::bad_response, endpoints_[index].at->name() + ": " + failure.what(),
                                       std::nullopt};
        }
        if (const auto& answer = *probed[index]; !answer && !not_up(answer.error().kind)) {
            endpoints_[index].not_up.clear();  // it is not waited for any more
        }
        changed.notify();
    }

    /// Asks all endpoints at once. When the first has passed, the others get a moment more.
    asio::awaitable<void> probe_all(Probed& probed) {
        TaskGroup group(io_);
        Condition changed(io_);
        for (std::size_t i = 0; i < endpoints_.size(); ++i) {
            if (!group.spawn(probe_one(i, probed, changed))) {
                throw std::logic_error("the probe's task group is closed");
            }
        }
        const auto known = [](const auto& one) { return one.has_value(); };
        // Tasks refer to what is here, so they are joined whatever happens to the caller.
        const bool throwing = co_await asio::this_coro::throw_if_cancelled();
        co_await asio::this_coro::throw_if_cancelled(false);
        std::exception_ptr thrown;
        try {
            while (std::none_of(probed.begin(), probed.end(), passed) &&
                   !std::all_of(probed.begin(), probed.end(), known)) {
                co_await changed.wait();
            }
        } catch (...) {
            thrown = std::current_exception();
            group.cancel();
        }
        auto joining = group.join();
        auto limited = with_deadline(std::move(joining), options_.join_grace);
        co_await std::move(limited);
        co_await asio::this_coro::throw_if_cancelled(throwing);
        if (thrown) {
            std::rethrow_exception(thrown);
        }
    }

    Result<TeacherInfo> sum_up(Probed& probed) {
        TeacherInfo info;
        const TeacherEndpoint* front = nullptr;
        bool replicas_agree = true;
        std::vector<std::string> refusals;
        std::vector<std::string> silences;
        for (std::size_t i = 0; i < probed.size(); ++i) {
            Member& member = endpoints_[i];
            member.absent = true;
            if (!probed[i]) {
                info.absent.push_back(i);
                silences.push_back(member.not_up.empty() ? member.at->name() + ": no answer" : member.not_up);
                continue;
            }
            if (!*probed[i]) {
                const bool refused = !not_up(probed[i]->error().kind);
                (refused ? info.refused : info.absent).push_back(i);
                (refused ? refusals : silences).push_back(probed[i]->error().message);
                continue;
            }
            EndpointProbe& probe = **probed[i];
            const bool half_precision = probe.half_precision;
            const bool deterministic = probe.deterministic;
            if (front == nullptr) {
                front = member.at.get();
                reference_ = std::move(probe);
            } else if (const auto difference = other_rows(*reference_, probe)) {
                info.refused.push_back(i);
                refusals.push_back(member.at->name() + ": " + *difference + front->name());
                continue;
            } else {
                replicas_agree = replicas_agree && same_targets(reference_->targets, probe.targets);
            }
            member.absent = false;
            info.deterministic = info.deterministic && deterministic;
            if (half_precision) {
                warn(member.at->name() +
                     ": its rows look as if computed in bf16 or fp16; served in float32 they are exact");
            }
        }
        if (front == nullptr) {
            return teacher_error(refusals.empty() ? silences.front() : refusals.front());
        }
        for (const std::string& refusal : refusals) {
            warn(refusal + "; the job goes on without this endpoint");
        }
        const TeacherTargets& answer = reference_->targets;
        info.kind = answer.kind;
        info.width = answer.width;
        info.top_k = answer.kind == TeacherTargets::Kind::topk ? answer.width : 0;
        info.vocabulary_size = answer.kind == TeacherTargets::Kind::logits ? answer.width : answer.vocabulary;
        if (info.vocabulary_size > settings_->vocabulary) {
            warn(front->name() + ": the teacher knows " + std::to_string(info.vocabulary_size) +
                 " tokens and the student " + std::to_string(settings_->vocabulary) +
                 ": an answer that names one of the others fails");
        }
        info.description = describe_teacher(*front, endpoints_.size(), info, replicas_agree);
        info.fingerprint = teacher_fingerprint(answer);
        info.deterministic = info.deterministic && replicas_agree;
        reproducible_ = info.deterministic;
        return info;
    }

    void warn(const std::string& text) const {
        if (options_.on_warning) {
            options_.on_warning(text);
        }
    }

    asio::awaitable<Result<void>> take_head(TeacherInfo& info) {
        HeadFetchOptions options;
        const EndpointProbeOptions patience = probe_options(options_.start_deadline);
        options.request_deadline = patience.request_deadline;
        options.give_up = patience.give_up;
        std::vector<TeacherEndpoint*> up;
        for (const Member& member : endpoints_) {
            if (!member.absent) {
                up.push_back(member.at.get());
            }
        }
        auto taking = head_.take(std::move(up), *reference_, settings_->vocabulary, options, info);
        co_return co_await std::move(taking);
    }

    /// Probes an endpoint that was not up before, so that it can take part from now on.
    asio::awaitable<FetchResult<void>> join(Member& member, std::chrono::nanoseconds deadline) {
        if (member.joining) {
            co_return FetchError{FailureKind::connection, member.at->name() + ": not up yet", std::nullopt};
        }
        struct Mark {
            bool& joining;
            ~Mark() { joining = false; }
        };
        member.joining = true;
        const Mark mark{member.joining};
        auto probing = probe_endpoint(*member.at, probe_options({}));
        auto limited = with_deadline(std::move(probing), deadline);
        const auto probed = co_await std::move(limited);
        if (!probed) {
            co_return FetchError{FailureKind::timeout, member.at->name() + ": no answer to the probe in time",
                                 std::nullopt};
        }
        if (!*probed) {
            // It may be mended and come again, so that even a refusal is no reason to end the job.
            const FetchError& error = probed->error();
            co_return FetchError{not_up(error.kind) ? error.kind : FailureKind::bad_response, error.message,
                                 error.retry_after};
        }
        if (const auto difference = other_rows(*reference_, **probed)) {
            co_return FetchError{FailureKind::bad_response, member.at->name() + ": " + *difference + "its peers",
                                 std::nullopt};
        }
        member.absent = false;
        const bool agrees = (*probed)->deterministic && same_targets(reference_->targets, (*probed)->targets);
        if (reproducible_ && !agrees) {
            reproducible_ = false;
            warn(member.at->name() +
                 ": joined late and answers differently from its peers: weights will not be reproducible bit for bit");
        }
        co_return FetchResult<void>();
    }

    asio::any_io_executor io_;
    RemoteTeacherOptions options_;
    HostResolver resolver_;
    std::shared_ptr<TeacherSettings> settings_;
    std::vector<Member> endpoints_;
    std::string waiting_for_;                 ///< what was last reported to be waited for
    std::optional<EndpointProbe> reference_;  ///< what the first endpoint that was up said to the probe
    HeadTaking head_;
    bool reproducible_ = true;  ///< all answers to the probe were the same
};

}  // namespace

Result<std::unique_ptr<TeacherSource>> make_remote_teacher(asio::any_io_executor io, asio::any_io_executor decode,
                                                           const TeacherSpec& spec, RemoteTeacherOptions options) {
    auto teacher = std::make_unique<RemoteTeacher>(std::move(io), std::move(decode), spec, std::move(options));
    if (auto ready = teacher->set_up(); !ready) {
        return ready.error();
    }
    return std::unique_ptr<TeacherSource>(std::move(teacher));
}

}  // namespace distilld

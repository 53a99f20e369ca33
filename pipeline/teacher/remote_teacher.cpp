#include "pipeline/teacher/remote_teacher.hpp"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "distilld_version.hpp"
#include "pipeline/async/deadline.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/teacher/http_failure.hpp"
#include "pipeline/teacher/target_rows.hpp"
#include "pipeline/teacher/teacher_adapter.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

using Clock = std::chrono::steady_clock;

/// Largest answer to the probe's three tokens.
constexpr std::uint64_t kProbeAnswerLimit = std::uint64_t{256} << 20U;
/// How far the probabilities of a row may miss 1: half precision keeps three digits.
constexpr double kNormalisationTolerance = 0.02;

/// One decoded answer and the form it came in.
struct Answer {
    TeacherTargets targets;
    bool binary = false;
};

struct Endpoint {
    Endpoint(asio::any_io_executor io, EndpointUrl url, std::shared_ptr<asio::ssl::context> tls,
             std::shared_ptr<BufferPool> buffers, std::shared_ptr<TrafficCounters> traffic, HttpPoolOptions options)
        : name(url.name),
          pool(std::move(io), std::move(url), std::move(tls), std::move(buffers), std::move(traffic),
               std::move(options)) {}

    std::string name;
    HttpPool pool;
    std::shared_ptr<const TeacherAdapter> adapter;
};

bool same_bytes(const ArrayView& a, const ArrayView& b) {
    return a.type == b.type && std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end());
}

bool same_targets(const TeacherTargets& a, const TeacherTargets& b) {
    return a.kind == b.kind && a.width == b.width && same_bytes(a.ids, b.ids) && same_bytes(a.values, b.values) &&
           same_bytes(a.tail, b.tail);
}

/// What is wrong with the probabilities of top-k rows, if anything.
std::optional<std::string> normalisation_defect(const TeacherTargets& targets) {
    if (targets.kind != TeacherTargets::Kind::topk) {
        return std::nullopt;
    }
    const std::size_t positions = std::size_t{targets.rows} * targets.columns;
    for (std::size_t position = 0; position < positions; ++position) {
        double sum = 0;
        for (std::size_t i = 0; i < targets.width; ++i) {
            sum += std::exp(static_cast<double>(element_as_float(targets.values, position * targets.width + i)));
        }
        const bool has_tail = !targets.tail.bytes.empty();
        if (has_tail) {
            sum += std::exp(static_cast<double>(element_as_float(targets.tail, position)));
        }
        if (sum > 1 + kNormalisationTolerance || (has_tail && sum < 1 - kNormalisationTolerance)) {
            return "the probabilities of position " + std::to_string(position) + " add up to " + std::to_string(sum) +
                   ": these are not log-probabilities of a softmax";
        }
        std::vector<std::uint32_t> ids;
        for (std::size_t i = 0; i < targets.width; ++i) {
            ids.push_back(element_as_id(targets.ids, position * targets.width + i));
        }
        std::sort(ids.begin(), ids.end());
        if (std::adjacent_find(ids.begin(), ids.end()) != ids.end()) {
            return "position " + std::to_string(position) + " names the same token twice";
        }
    }
    return std::nullopt;
}

bool is_success(const HttpResponse& response) {
    return response.status >= 200 && response.status < 300;
}

bool worth_waiting(const FetchError& failure) {
    return failure.kind == FailureKind::connection || failure.kind == FailureKind::timeout ||
           failure.kind == FailureKind::overloaded;
}

Error teacher_error(std::string message) {
    return Error{ErrorKind::teacher, std::move(message)};
}

class RemoteTeacher final : public TeacherSource {
  public:
    RemoteTeacher(asio::any_io_executor io, asio::any_io_executor decode, TeacherSpec spec,
                  RemoteTeacherOptions options)
        : io_(std::move(io)),
          decode_(std::move(decode)),
          spec_(std::move(spec)),
          options_(std::move(options)),
          buffers_(std::make_shared<BufferPool>(options_.max_idle_buffer_bytes)) {}

    Result<void> set_up() {
        if (spec_.endpoints.empty()) {
            return invalid_input("teacher.endpoints is empty");
        }
        HttpPoolOptions pool_options;
        pool_options.user_agent = std::string("distilld/") + kVersion;
        pool_options.idle_limit = options_.idle_limit;
        if (!spec_.api_key_env.empty()) {
            const char* key = std::getenv(spec_.api_key_env.c_str());
            if (key == nullptr || *key == '\0') {
                return invalid_input("teacher.api_key_env: the environment variable " + spec_.api_key_env +
                                     " is not set");
            }
            pool_options.bearer = key;
            if (pool_options.bearer.find_first_of("\r\n") != std::string::npos) {
                return invalid_input("teacher.api_key_env: the value of " + spec_.api_key_env +
                                     " has more than one line");
            }
        }
        if (!options_.traffic) {
            options_.traffic = std::make_shared<TrafficCounters>();
        }
        std::vector<EndpointUrl> urls;
        for (const std::string& text : spec_.endpoints) {
            auto url = parse_endpoint_url(text, spec_.protocol, spec_.model);
            if (!url) {
                return url.error();
            }
            urls.push_back(std::move(*url));
        }
        // Reading the system's certificates takes tens of milliseconds: only when they are needed.
        std::shared_ptr<asio::ssl::context> tls;
        if (!spec_.ca_file.empty() || std::any_of(urls.begin(), urls.end(), [](const auto& url) { return url.tls; })) {
            auto made = make_tls_client_context(spec_.ca_file);
            if (!made) {
                return made.error();
            }
            tls = std::move(*made);
        }
        for (const EndpointUrl& url : urls) {
            if (spec_.protocol == TeacherProtocol::kserve) {
                if (auto paths = kserve_paths(url); !paths) {
                    return paths.error();
                }
            }
            auto endpoint = std::make_unique<Endpoint>(io_, url, tls, buffers_, options_.traffic, pool_options);
            // Before a probe our own teacher is assumed.
            auto adapter = make_adapter(url, KserveDialect{.metadata = own_teacher_metadata(spec_.model)}, false);
            if (!adapter) {
                return adapter.error();
            }
            endpoint->adapter = *adapter;
            endpoints_.push_back(std::move(endpoint));
        }
        return {};
    }

    std::size_t endpoint_count() const override { return endpoints_.size(); }
    const std::string& endpoint_name(std::size_t endpoint) const override { return endpoints_.at(endpoint)->name; }

    asio::awaitable<FetchResult<TeacherTargets>> fetch(std::size_t endpoint, std::shared_ptr<const TokenBatch> tokens,
                                                       std::chrono::nanoseconds deadline) override {
        Endpoint& where = *endpoints_.at(endpoint);
        try {
            auto asking = ask(where, where.adapter, std::move(tokens), deadline);
            auto answer = co_await std::move(asking);
            if (!answer) {
                co_return answer.error();
            }
            co_return std::move(answer->targets);
        } catch (const boost::system::system_error& failure) {
            if (failure.code() != asio::error::operation_aborted) {
                throw;
            }
        }
        co_return FetchError{FailureKind::cancelled, where.name + ": cancelled", std::nullopt};
    }

    asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t vocabulary_size) override {
        vocabulary_ = vocabulary_size;
        const auto give_up = Clock::now() + options_.start_deadline;
        TeacherInfo info;
        std::optional<TeacherTargets> first;
        bool replicas_agree = true;
        try {
            for (const auto& endpoint : endpoints_) {
                auto probing = probe_endpoint(*endpoint, give_up, info);
                auto targets = co_await std::move(probing);
                if (!targets) {
                    co_return targets.error();
                }
                if (!first) {
                    first = std::move(*targets);
                    continue;
                }
                if (first->kind != targets->kind || first->width != targets->width) {
                    co_return teacher_error(endpoint->name + ": answers rows of " + std::to_string(targets->width) +
                                            " values, " + endpoints_.front()->name + " answers " +
                                            std::to_string(first->width));
                }
                replicas_agree = replicas_agree && same_targets(*first, *targets);
            }
        } catch (const boost::system::system_error& failure) {
            if (failure.code() != asio::error::operation_aborted) {
                throw;
            }
            co_return Error{ErrorKind::cancelled, "the probe of the teacher was cancelled"};
        }
        const bool logits = first->kind == TeacherTargets::Kind::logits;
        info.top_k = logits ? 0 : first->width;
        if (logits) {
            info.vocabulary_size = first->width;
        }
        info.description = describe(info, replicas_agree);
        info.deterministic = info.deterministic && replicas_agree;
        co_return info;
    }

    void close() override {
        for (const auto& endpoint : endpoints_) {
            endpoint->pool.close();
        }
    }

  private:
    [[nodiscard]] std::string describe(const TeacherInfo& info, bool replicas_agree) const {
        std::string text = endpoints_.front()->name;
        if (endpoints_.size() > 1) {
            text += " and " + std::to_string(endpoints_.size() - 1) + " more";
        }
        text += ": " + endpoints_.front()->adapter->description();
        if (info.top_k == 0) {
            text += ", vocabulary " + std::to_string(info.vocabulary_size);
        }
        text += info.deterministic ? "" : ", answers differ from one request to the next";
        text += replicas_agree ? "" : ", endpoints answer differently";
        return text;
    }

    [[nodiscard]] Result<std::shared_ptr<const TeacherAdapter>> make_adapter(const EndpointUrl& url,
                                                                             KserveDialect dialect,
                                                                             bool probing) const {
        TargetsWanted wanted;
        wanted.top_k = spec_.top_k;
        wanted.vocabulary = vocabulary_;
        wanted.probing = probing;
        wanted.response_limit =
            probing ? std::min(kProbeAnswerLimit, options_.max_response_bytes) : options_.max_response_bytes;
        if (spec_.protocol == TeacherProtocol::seed) {
            return std::shared_ptr<const TeacherAdapter>(make_seed_adapter(url, wanted, buffers_));
        }
        auto adapter = make_kserve_adapter(url, wanted, std::move(dialect));
        if (!adapter) {
            return Error{adapter.error().kind, url.name + ": " + adapter.error().message};
        }
        return std::shared_ptr<const TeacherAdapter>(std::move(*adapter));
    }

    /// One request within the deadline, whatever the status of the answer.
    asio::awaitable<FetchResult<HttpResponse>> send(Endpoint& endpoint, HttpRequest request,
                                                    std::chrono::nanoseconds deadline) {
        auto operation = endpoint.pool.request(std::move(request));
        auto limited = with_deadline(std::move(operation), deadline);
        auto response = co_await std::move(limited);
        if (!response) {
            const double seconds = std::chrono::duration<double>(deadline).count();
            std::string shown = std::to_string(seconds);
            shown.erase(shown.find_last_not_of('0') + 1);
            if (shown.ends_with('.')) {
                shown.pop_back();
            }
            co_return FetchError{FailureKind::timeout, endpoint.name + ": no answer within " + shown + " s",
                                 std::nullopt};
        }
        co_return std::move(*response);
    }

    /// One request and its decoded, checked answer. Throws operation_aborted when cancelled.
    asio::awaitable<FetchResult<Answer>> ask(Endpoint& endpoint, std::shared_ptr<const TeacherAdapter> adapter,
                                             std::shared_ptr<const TokenBatch> tokens,
                                             std::chrono::nanoseconds deadline) {
        auto request = adapter->make_request(*tokens);
        if (!request) {
            co_return FetchError{FailureKind::rejected, endpoint.name + ": " + request.error().message, std::nullopt};
        }
        auto sending = send(endpoint, std::move(*request), deadline);
        auto response = co_await std::move(sending);
        if (!response) {
            co_return response.error();
        }
        if (!is_success(*response)) {
            co_return failure_of_status(endpoint.name, *response);
        }
        const std::uint32_t vocabulary = vocabulary_;
        auto work = [adapter, tokens, vocabulary, held = std::move(*response)]() -> Result<Answer> {
            Answer answer;
            answer.binary = held.kserve_header_length.has_value();
            auto targets = adapter->decode(held, *tokens);
            if (!targets) {
                return targets.error();
            }
            if (const auto defect = find_defect(*targets, vocabulary)) {
                return teacher_error(*defect);
            }
            answer.targets = std::move(*targets);
            return answer;
        };
        auto decoding = run_on(decode_, std::move(work));
        auto answer = co_await std::move(decoding);
        if (!answer) {
            co_return FetchError{FailureKind::bad_response, endpoint.name + ": " + answer.error().message,
                                 std::nullopt};
        }
        co_return std::move(*answer);
    }

    asio::awaitable<void> pause(Clock::time_point give_up) {
        asio::steady_timer timer(io_);
        timer.expires_at(std::min(give_up, Clock::now() + std::chrono::milliseconds(250)));
        co_await timer.async_wait(asio::use_awaitable);
    }

    [[nodiscard]] std::chrono::nanoseconds request_deadline() const {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(spec_.timeout_secs));
    }

    /// Asks again while the endpoint is not up, until `give_up`.
    asio::awaitable<FetchResult<Answer>> ask_patiently(Endpoint& endpoint,
                                                       std::shared_ptr<const TeacherAdapter> adapter,
                                                       std::shared_ptr<const TokenBatch> tokens,
                                                       Clock::time_point give_up) {
        for (;;) {
            auto asking = ask(endpoint, adapter, tokens, request_deadline());
            auto answer = co_await std::move(asking);
            if (answer || !worth_waiting(answer.error()) || Clock::now() >= give_up) {
                co_return answer;
            }
            co_await pause(give_up);
        }
    }

    /// A GET, again and again while the endpoint is not up, until `give_up`. A server that loads its model answers 503,
    /// and Triton 400 to the question whether it is ready.
    asio::awaitable<FetchResult<HttpResponse>> get_patiently(Endpoint& endpoint, std::string target, bool readiness,
                                                             Clock::time_point give_up) {
        for (;;) {
            HttpRequest request;
            request.post = false;
            request.target = target;
            request.response_limit = std::uint64_t{1} << 20U;
            auto sending = send(endpoint, std::move(request), request_deadline());
            auto response = co_await std::move(sending);
            bool wait = false;
            if (response) {
                wait = response->status == 503 || response->status == 429 || (readiness && response->status == 400);
            } else {
                wait = worth_waiting(response.error());
            }
            if (!wait || Clock::now() >= give_up) {
                co_return response;
            }
            co_await pause(give_up);
        }
    }

    /// Waits until the server is ready, then learns how to speak to it.
    asio::awaitable<Result<KserveDialect>> learn_dialect(Endpoint& endpoint, Clock::time_point give_up) {
        const auto paths = kserve_paths(endpoint.pool.url());
        if (!paths) {
            co_return paths.error();
        }
        auto readiness = get_patiently(endpoint, paths->ready, true, give_up);
        const auto ready = co_await std::move(readiness);
        if (!ready) {
            co_return teacher_error("the teacher is not ready: " + ready.error().message);
        }
        // A gateway may offer the model without the server's own health page.
        const bool no_such_page = ready->status == 404 || ready->status == 405;
        if (!is_success(*ready) && !no_such_page) {
            co_return teacher_error("the teacher is not ready: " + failure_of_status(endpoint.name, *ready).message);
        }
        auto asking = get_patiently(endpoint, paths->model + endpoint.pool.url().query, false, give_up);
        const auto response = co_await std::move(asking);
        if (!response) {
            co_return teacher_error("the model's metadata cannot be read: " + response.error().message);
        }
        if (!is_success(*response)) {
            co_return teacher_error("the model's metadata cannot be read: " +
                                    failure_of_status(endpoint.name, *response).message);
        }
        const auto bytes = response->body->bytes();
        const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        auto metadata = kserve::parse_model_metadata(text);
        if (!metadata) {
            co_return teacher_error(endpoint.name +
                                    ": the model's metadata cannot be read: " + metadata.error().message);
        }
        KserveDialect dialect;
        dialect.metadata = std::move(*metadata);
        co_return dialect;
    }

    /// First answer of a KServe endpoint: binary tensors, or JSON where the server refuses those.
    asio::awaitable<FetchResult<Answer>> first_answer(Endpoint& endpoint, KserveDialect& dialect,
                                                      std::shared_ptr<const TokenBatch> tokens,
                                                      Clock::time_point give_up) {
        const auto& url = endpoint.pool.url();
        const auto adapter = make_adapter(url, dialect, true);
        if (!adapter) {
            co_return FetchError{FailureKind::rejected, adapter.error().message, std::nullopt};
        }
        auto asking = ask_patiently(endpoint, *adapter, tokens, give_up);
        auto answer = co_await std::move(asking);
        if (answer || spec_.protocol == TeacherProtocol::seed || worth_waiting(answer.error())) {
            co_return answer;
        }
        // MLServer refuses binary requests with 500 and no reason.
        dialect.binary_input = false;
        const auto plain = make_adapter(url, dialect, true);
        if (!plain) {
            co_return answer;
        }
        auto asking_again = ask_patiently(endpoint, *plain, tokens, give_up);
        auto second = co_await std::move(asking_again);
        if (!second && second.error().message != answer.error().message) {
            co_return FetchError{answer.error().kind,
                                 answer.error().message + " (and with JSON tensors: " + second.error().message + ")",
                                 std::nullopt};
        }
        co_return second;
    }

    asio::awaitable<Result<TeacherTargets>> probe_endpoint(Endpoint& endpoint, Clock::time_point give_up,
                                                           TeacherInfo& info) {
        KserveDialect dialect;
        if (spec_.protocol == TeacherProtocol::kserve) {
            auto learning = learn_dialect(endpoint, give_up);
            auto learnt = co_await std::move(learning);
            if (!learnt) {
                co_return learnt.error();
            }
            dialect = std::move(*learnt);
        }
        const auto tokens = probe_tokens();
        auto asking = first_answer(endpoint, dialect, tokens, give_up);
        auto first = co_await std::move(asking);
        if (!first) {
            co_return teacher_error("the teacher fails the probe: " + first.error().message);
        }
        if (const auto defect = normalisation_defect(first->targets)) {
            co_return teacher_error("the teacher fails the probe: " + endpoint.name + ": " + *defect);
        }
        dialect.binary_output = first->binary;
        if (first->targets.kind == TeacherTargets::Kind::topk && dialect.metadata.find_output("topk_ids") != nullptr) {
            dialect.honoured_k = first->targets.width;
        }
        const auto adapter = make_adapter(endpoint.pool.url(), dialect, false);
        if (!adapter) {
            co_return adapter.error();
        }
        endpoint.adapter = *adapter;
        auto asking_again = ask_patiently(endpoint, endpoint.adapter, tokens, give_up);
        auto second = co_await std::move(asking_again);
        if (!second) {
            co_return teacher_error("the teacher fails the probe: " + second.error().message);
        }
        info.deterministic = info.deterministic && same_targets(first->targets, second->targets);
        co_return std::move(first->targets);
    }

    /// One sequence of three tokens that every vocabulary has.
    [[nodiscard]] std::shared_ptr<const TokenBatch> probe_tokens() const {
        auto tokens = std::make_shared<TokenBatch>();
        tokens->rows = 1;
        tokens->columns = 3;
        const auto modulus = static_cast<std::int32_t>(std::max<std::uint32_t>(vocabulary_, 1));
        tokens->input_ids = {1 % modulus, 2 % modulus, 0};
        tokens->labels = {2 % modulus, 0, kIgnoredLabel};
        tokens->lengths = {3};
        tokens->target_tokens = 2;
        return tokens;
    }

    asio::any_io_executor io_;
    asio::any_io_executor decode_;
    TeacherSpec spec_;
    RemoteTeacherOptions options_;
    std::shared_ptr<BufferPool> buffers_;
    std::vector<std::unique_ptr<Endpoint>> endpoints_;
    std::uint32_t vocabulary_ = 0;  ///< the student's; 0 before the probe
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

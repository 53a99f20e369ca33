#include "pipeline/teacher/endpoint_probe.hpp"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline/teacher/target_rows.hpp"
#include "pipeline/teacher/transport/http_failure.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

using Clock = std::chrono::steady_clock;

/// How far the probabilities of a row may miss 1: half precision keeps three digits.
constexpr double kNormalisationTolerance = 0.02;
constexpr std::chrono::milliseconds kPause{250};
constexpr std::uint64_t kMetadataLimit = std::uint64_t{1} << 20U;

bool same_bytes(const ArrayView& a, const ArrayView& b) {
    return a.type == b.type && std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end());
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

/// A server that loads its model, or a gateway whose server is gone.
bool not_up_status(unsigned status) {
    return status == 429 || (status >= 502 && status <= 504);
}

FetchError prefixed(const char* what, FetchError failure) {
    failure.message = what + failure.message;
    return failure;
}

/// One sequence of three tokens that every vocabulary has.
std::shared_ptr<const TokenBatch> probe_tokens(std::uint32_t vocabulary) {
    auto tokens = std::make_shared<TokenBatch>();
    tokens->rows = 1;
    tokens->columns = 3;
    const auto modulus = static_cast<std::int32_t>(std::max<std::uint32_t>(vocabulary, 1));
    tokens->input_ids = {1 % modulus, 2 % modulus, 0};
    tokens->labels = {2 % modulus, 0, kIgnoredLabel};
    tokens->lengths = {3};
    tokens->target_tokens = 2;
    return tokens;
}

class Prober {
  public:
    Prober(TeacherEndpoint& endpoint, TeacherProtocol protocol, EndpointProbeOptions options)
        : endpoint_(endpoint), protocol_(protocol), options_(options), tokens_(probe_tokens(options.vocabulary)) {}

    asio::awaitable<FetchResult<EndpointProbe>> run() {
        KserveDialect dialect;
        if (protocol_ == TeacherProtocol::kserve) {
            auto learning = learn_dialect();
            auto learnt = co_await std::move(learning);
            if (!learnt) {
                co_return learnt.error();
            }
            dialect = std::move(*learnt);
        }
        auto asking = first_answer(dialect);
        auto first = co_await std::move(asking);
        if (!first) {
            co_return prefixed(kFails, first.error());
        }
        if (const auto defect = normalisation_defect(first->targets)) {
            co_return refusal(kFails + (endpoint_.name() + ": " + *defect));
        }
        dialect.binary_output = first->binary;
        if (first->targets.kind == TeacherTargets::Kind::topk && dialect.metadata.find_output("topk_ids") != nullptr) {
            dialect.honoured_k = first->targets.width;
        }
        const auto adapter = endpoint_.make_adapter(std::move(dialect), false);
        if (!adapter) {
            co_return refusal(adapter.error().message);
        }
        auto asking_again = ask_patiently(*adapter);
        auto second = co_await std::move(asking_again);
        if (!second) {
            co_return prefixed(kFails, second.error());
        }
        endpoint_.set_adapter(*adapter);
        EndpointProbe probe;
        probe.deterministic = same_targets(first->targets, second->targets);
        probe.targets = std::move(first->targets);
        co_return probe;
    }

  private:
    static constexpr const char* kFails = "the teacher fails the probe: ";

    static FetchError refusal(std::string message) {
        return {FailureKind::bad_response, std::move(message), std::nullopt};
    }

    asio::awaitable<void> pause() const {
        asio::steady_timer timer(co_await asio::this_coro::executor);
        timer.expires_at(std::min(options_.give_up, Clock::now() + kPause));
        co_await timer.async_wait(asio::use_awaitable);
    }

    /// Asks again while the endpoint is not up, until it is time to give up.
    asio::awaitable<FetchResult<EndpointAnswer>> ask_patiently(std::shared_ptr<const TeacherAdapter> adapter) {
        for (;;) {
            auto asking = endpoint_.ask(adapter, tokens_, options_.request_deadline);
            auto answer = co_await std::move(asking);
            if (answer || !not_up(answer.error().kind) || Clock::now() >= options_.give_up) {
                co_return answer;
            }
            co_await pause();
        }
    }

    /// A GET, again and again while the endpoint is not up. Triton answers 400 to the question whether it is ready
    /// while it loads a model.
    asio::awaitable<FetchResult<HttpResponse>> get_patiently(std::string target, bool readiness) {
        for (;;) {
            HttpRequest request;
            request.post = false;
            request.target = target;
            request.response_limit = kMetadataLimit;
            auto sending = endpoint_.send(std::move(request), options_.request_deadline);
            auto response = co_await std::move(sending);
            std::optional<FetchError> absent;
            if (!response) {
                if (not_up(response.error().kind)) {
                    absent = response.error();
                }
            } else if (not_up_status(response->status) || (readiness && response->status == 400)) {
                absent = failure_of_status(endpoint_.name(), *response);
                absent->kind = FailureKind::overloaded;
            }
            if (!absent) {
                co_return response;
            }
            if (Clock::now() >= options_.give_up) {
                co_return *absent;
            }
            co_await pause();
        }
    }

    /// Waits until the server is ready, then learns how to speak to it.
    asio::awaitable<FetchResult<KserveDialect>> learn_dialect() {
        static constexpr const char* kNotReady = "the teacher is not ready: ";
        static constexpr const char* kNoMetadata = "the model's metadata cannot be read: ";
        const auto paths = kserve_paths(endpoint_.url());
        if (!paths) {
            co_return refusal(paths.error().message);
        }
        auto readiness = get_patiently(paths->ready, true);
        const auto ready = co_await std::move(readiness);
        if (!ready) {
            co_return prefixed(kNotReady, ready.error());
        }
        // A gateway may offer the model without the server's own health page.
        const bool no_such_page = ready->status == 404 || ready->status == 405;
        if (!is_success(*ready) && !no_such_page) {
            co_return prefixed(kNotReady, failure_of_status(endpoint_.name(), *ready));
        }
        auto asking = get_patiently(paths->model + endpoint_.url().query, false);
        const auto response = co_await std::move(asking);
        if (!response) {
            co_return prefixed(kNoMetadata, response.error());
        }
        if (!is_success(*response)) {
            co_return prefixed(kNoMetadata, failure_of_status(endpoint_.name(), *response));
        }
        const auto bytes = response->body->bytes();
        const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        auto metadata = kserve::parse_model_metadata(text);
        if (!metadata) {
            co_return refusal(endpoint_.name() + ": " + kNoMetadata + metadata.error().message);
        }
        KserveDialect dialect;
        dialect.metadata = std::move(*metadata);
        co_return dialect;
    }

    /// First answer of a KServe endpoint: binary tensors, or JSON where the server refuses those.
    asio::awaitable<FetchResult<EndpointAnswer>> first_answer(KserveDialect& dialect) {
        const auto adapter = endpoint_.make_adapter(dialect, true);
        if (!adapter) {
            co_return FetchError{FailureKind::rejected, adapter.error().message, std::nullopt};
        }
        auto asking = ask_patiently(*adapter);
        auto answer = co_await std::move(asking);
        if (answer || protocol_ == TeacherProtocol::seed || not_up(answer.error().kind)) {
            co_return answer;
        }
        // MLServer refuses binary requests with 500 and no reason.
        dialect.binary_input = false;
        const auto plain = endpoint_.make_adapter(dialect, true);
        if (!plain) {
            co_return answer;
        }
        auto asking_again = ask_patiently(*plain);
        auto second = co_await std::move(asking_again);
        if (!second && second.error().message != answer.error().message) {
            co_return FetchError{answer.error().kind,
                                 answer.error().message + " (and with JSON tensors: " + second.error().message + ")",
                                 std::nullopt};
        }
        co_return second;
    }

    TeacherEndpoint& endpoint_;
    TeacherProtocol protocol_;
    EndpointProbeOptions options_;
    std::shared_ptr<const TokenBatch> tokens_;
};

}  // namespace

asio::awaitable<FetchResult<EndpointProbe>> probe_endpoint(TeacherEndpoint& endpoint, TeacherProtocol protocol,
                                                           EndpointProbeOptions options) {
    Prober prober(endpoint, protocol, options);
    auto running = prober.run();
    co_return co_await std::move(running);
}

bool not_up(FailureKind kind) noexcept {
    return kind == FailureKind::connection || kind == FailureKind::timeout || kind == FailureKind::overloaded;
}

bool same_targets(const TeacherTargets& a, const TeacherTargets& b) {
    return a.kind == b.kind && a.width == b.width && same_bytes(a.ids, b.ids) && same_bytes(a.values, b.values) &&
           same_bytes(a.tail, b.tail);
}

}  // namespace distilld

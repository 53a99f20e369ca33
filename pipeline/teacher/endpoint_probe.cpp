#include "pipeline/teacher/endpoint_probe.hpp"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cmath>
#include <optional>
#include <string>
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
constexpr std::uint64_t kDescriptionLimit = std::uint64_t{1} << 20U;

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
        if (!row_is_given(targets, position)) {
            continue;
        }
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
        ids.reserve(targets.width);
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

class EndpointDialogue final : public ProbeDialogue {
  public:
    EndpointDialogue(TeacherEndpoint& endpoint, EndpointProbeOptions options)
        : endpoint_(endpoint), options_(options), tokens_(probe_tokens(endpoint.settings().vocabulary)) {}

    const std::string& endpoint_name() const override { return endpoint_.name(); }

    asio::awaitable<FetchResult<HttpResponse>> send(HttpRequest question,
                                                    std::optional<unsigned> loading_status) override {
        for (;;) {
            HttpRequest request = question;
            request.response_limit = kDescriptionLimit;
            auto sending = endpoint_.send(std::move(request), options_.request_deadline);
            auto response = co_await std::move(sending);
            std::optional<FetchError> absent;
            if (!response) {
                if (not_up(response.error().kind)) {
                    absent = response.error();
                }
            } else if (not_up_status(response->status) || response->status == loading_status) {
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

    asio::awaitable<FetchResult<EndpointAnswer>> ask(std::shared_ptr<const TeacherCodec> codec) override {
        return ask_patiently(std::move(codec), AnswerBound::probe);
    }

    /// Asks again while the endpoint is not up, until it is time to give up.
    asio::awaitable<FetchResult<EndpointAnswer>> ask_patiently(std::shared_ptr<const TeacherCodec> codec,
                                                               AnswerBound bound) {
        for (;;) {
            auto asking = endpoint_.ask(codec, tokens_, options_.request_deadline, bound);
            auto answer = co_await std::move(asking);
            if (answer || !not_up(answer.error().kind) || Clock::now() >= options_.give_up) {
                co_return answer;
            }
            co_await pause();
        }
    }

  private:
    asio::awaitable<void> pause() const {
        asio::steady_timer timer(co_await asio::this_coro::executor);
        timer.expires_at(std::min(options_.give_up, Clock::now() + kPause));
        co_await timer.async_wait(asio::use_awaitable);
    }

    TeacherEndpoint& endpoint_;
    EndpointProbeOptions options_;
    std::shared_ptr<const TokenBatch> tokens_;
};

}  // namespace

asio::awaitable<FetchResult<EndpointProbe>> probe_endpoint(TeacherEndpoint& endpoint, EndpointProbeOptions options) {
    EndpointDialogue dialogue(endpoint, options);
    auto negotiating = endpoint.protocol().negotiate(dialogue, endpoint.settings().wanted());
    auto negotiated = co_await std::move(negotiating);
    if (!negotiated) {
        co_return negotiated.error();
    }
    if (const auto defect = normalisation_defect(negotiated->answer)) {
        co_return failed_probe({FailureKind::bad_response, endpoint.name() + ": " + *defect, std::nullopt});
    }
    auto asking_again = dialogue.ask_patiently(negotiated->codec, AnswerBound::stated);
    auto second = co_await std::move(asking_again);
    if (!second) {
        co_return failed_probe(second.error());
    }
    endpoint.set_codec(std::move(negotiated->codec));
    EndpointProbe probe;
    probe.deterministic = same_targets(negotiated->answer, second->targets);
    probe.targets = std::move(negotiated->answer);
    co_return probe;
}

bool same_targets(const TeacherTargets& a, const TeacherTargets& b) {
    return a.kind == b.kind && a.width == b.width && same_bytes(a.ids, b.ids) && same_bytes(a.values, b.values) &&
           same_bytes(a.tail, b.tail) && same_bytes(a.loss_mask, b.loss_mask);
}

}  // namespace distilld

#include "pipeline/teacher/teacher_endpoint.hpp"

#include <algorithm>
#include <utility>

#include "pipeline/async/deadline.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/teacher/target_rows.hpp"
#include "pipeline/teacher/transport/http_failure.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

/// Largest answer to the probe's three tokens.
constexpr std::uint64_t kProbeAnswerLimit = std::uint64_t{256} << 20U;

/// "2.5 s".
std::string in_seconds(std::chrono::nanoseconds span) {
    std::string text = std::to_string(std::chrono::duration<double>(span).count());
    text.erase(text.find_last_not_of('0') + 1);
    if (text.ends_with('.')) {
        text.pop_back();
    }
    return text + " s";
}

FetchError late(const std::string& endpoint, std::chrono::nanoseconds deadline) {
    return {FailureKind::timeout, endpoint + ": no answer within " + in_seconds(deadline), std::nullopt};
}

/// `responses` to `parts`, in the same order.
Result<EndpointAnswer> decode_answer(const TeacherCodec& codec, const TokenBatch& tokens, std::uint32_t vocabulary,
                                     const std::vector<RequestPart>& parts, std::vector<HttpResponse> responses) {
    std::vector<AnsweredPart> answered;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        auto targets = codec.decode(responses[i], tokens, parts[i]);
        if (!targets) {
            return targets.error();
        }
        answered.push_back({parts[i], std::move(*targets)});
    }
    auto joined = join_targets(tokens, std::move(answered));
    if (!joined) {
        return joined.error();
    }
    if (const auto defect = find_defect(*joined, vocabulary)) {
        return teacher_error(*defect);
    }
    if (const auto missing = find_missing_row(*joined, tokens)) {
        return teacher_error(*missing);
    }
    return EndpointAnswer{std::move(*joined), std::move(responses)};
}

}  // namespace

TeacherEndpoint::TeacherEndpoint(asio::any_io_executor io, EndpointUrl url,
                                 std::unique_ptr<const TeacherProtocolAdapter> protocol,
                                 std::shared_ptr<asio::ssl::context> tls, std::shared_ptr<TrafficCounters> traffic,
                                 HttpPoolOptions options, std::shared_ptr<const TeacherSettings> settings)
    : name_(url.name),
      protocol_(std::move(protocol)),
      pool_(std::move(io), std::move(url), std::move(tls), settings->buffers, std::move(traffic), std::move(options)),
      settings_(std::move(settings)) {}

asio::awaitable<FetchResult<HttpResponse>> TeacherEndpoint::send(HttpRequest request,
                                                                 std::chrono::nanoseconds deadline) {
    auto operation = pool_.request(std::move(request));
    auto limited = with_deadline(std::move(operation), deadline);
    auto response = co_await std::move(limited);
    if (!response) {
        co_return late(name_, deadline);
    }
    co_return std::move(*response);
}

Result<TeacherEndpoint::Plan> TeacherEndpoint::plan(const TeacherCodec& codec, const TokenBatch& tokens,
                                                    AnswerBound bound) const {
    auto parts = codec.plan_requests(tokens);
    if (!parts) {
        return parts.error();
    }
    Plan plan;
    for (const RequestPart& part : *parts) {
        auto request = codec.make_request(tokens, part);
        if (!request) {
            return request.error();
        }
        const std::uint64_t limit =
            bound == AnswerBound::probe
                ? kProbeAnswerLimit
                : codec.answer_size(part.rows, part.columns).max_wire_bytes.value_or(settings_->max_response_bytes);
        request->response_limit = std::min(limit, settings_->max_response_bytes);
        plan.requests.push_back(std::move(*request));
    }
    plan.parts = std::move(*parts);
    return plan;
}

asio::awaitable<FetchResult<std::vector<HttpResponse>>> TeacherEndpoint::send_all(std::vector<HttpRequest> requests) {
    std::vector<HttpResponse> responses;
    for (HttpRequest& request : requests) {
        auto operation = pool_.request(std::move(request));
        auto response = co_await std::move(operation);
        if (!response) {
            co_return response.error();
        }
        if (!is_success(*response)) {
            co_return failure_of_status(name_, *response);
        }
        responses.push_back(std::move(*response));
    }
    co_return responses;
}

asio::awaitable<FetchResult<EndpointAnswer>> TeacherEndpoint::ask(std::shared_ptr<const TeacherCodec> codec,
                                                                  std::shared_ptr<const TokenBatch> tokens,
                                                                  std::chrono::nanoseconds deadline,
                                                                  AnswerBound bound) {
    auto planned = plan(*codec, *tokens, bound);
    if (!planned) {
        co_return FetchError{FailureKind::rejected, name_ + ": " + planned.error().message, std::nullopt};
    }
    auto operation = send_all(std::move(planned->requests));
    auto limited = with_deadline(std::move(operation), deadline);
    auto responses = co_await std::move(limited);
    if (!responses) {
        co_return late(name_, deadline);
    }
    if (!*responses) {
        co_return responses->error();
    }
    auto work = [codec, tokens, vocabulary = settings_->vocabulary, parts = std::move(planned->parts),
                 held = std::move(**responses)]() mutable -> Result<EndpointAnswer> {
        return decode_answer(*codec, *tokens, vocabulary, parts, std::move(held));
    };
    auto decoding = run_on(settings_->decode, std::move(work));
    auto answer = co_await std::move(decoding);
    if (!answer) {
        co_return FetchError{FailureKind::bad_response, name_ + ": " + answer.error().message, std::nullopt};
    }
    co_return std::move(*answer);
}

}  // namespace distilld

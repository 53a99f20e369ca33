#include "pipeline/teacher/teacher_endpoint.hpp"

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <utility>

#include "net/http_failure.hpp"
#include "pipeline/async/deadline.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/core/target_rows.hpp"
#include "pipeline/teacher/answer_decoding.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

/// Maximum size of an answer to the probe's three tokens.
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

}  // namespace

class TeacherEndpoint::AnswerDecoder final : public EncodedAnswer::Decoder {
  public:
    AnswerDecoder(std::string endpoint, std::shared_ptr<const TeacherCodec> codec,
                  std::shared_ptr<const TokenBatch> tokens, const TeacherSettings& settings, Answered answered)
        : endpoint_(std::move(endpoint)),
          codec_(std::move(codec)),
          tokens_(std::move(tokens)),
          vocabulary_{settings.vocabulary, settings.logits},
          answered_(std::move(answered)) {}

    FetchResult<EndpointAnswer> decode_with_headers() {
        auto answer = decode_answer(*codec_, *tokens_, vocabulary_, answered_.parts, std::move(answered_.responses));
        if (!answer) {
            FetchError failure = answer.error();
            failure.message = endpoint_ + ": " + failure.message;
            return failure;
        }
        return std::move(*answer);
    }

    FetchResult<TeacherTargets> decode() override {
        auto answer = decode_with_headers();
        if (!answer) {
            return answer.error();
        }
        return std::move(answer->targets);
    }

  private:
    std::string endpoint_;
    std::shared_ptr<const TeacherCodec> codec_;
    std::shared_ptr<const TokenBatch> tokens_;
    AnswerVocabulary vocabulary_;
    Answered answered_;
};

TeacherEndpoint::TeacherEndpoint(asio::any_io_executor io, HostResolver& resolver, EndpointUrl url,
                                 std::unique_ptr<const TeacherProtocolAdapter> protocol,
                                 std::shared_ptr<asio::ssl::context> tls, std::shared_ptr<TrafficCounters> traffic,
                                 HttpPoolOptions options, std::shared_ptr<const TeacherSettings> settings)
    : name_(url.name),
      protocol_(std::move(protocol)),
      pool_(std::move(io), resolver, std::move(url), std::move(tls), settings->buffers, std::move(traffic),
            std::move(options)),
      settings_(std::move(settings)) {}

asio::awaitable<FetchResult<HttpResponse>> TeacherEndpoint::send(HttpRequest request,
                                                                 std::chrono::nanoseconds deadline) {
    auto operation = pool_.request(std::move(request));
    auto response = co_await with_deadline(std::move(operation), deadline);
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
        const AnswerSize size = codec.answer_size(part.rows, part.columns);
        std::uint64_t limit = size.max_accepted_bytes != 0
                                  ? size.max_accepted_bytes
                                  : size.max_wire_bytes.value_or(settings_->max_response_bytes);
        limit = bound == AnswerBound::probe ? kProbeAnswerLimit : limit;
        request->response_limit = std::min(limit, settings_->max_response_bytes);
        plan.requests.push_back(std::move(*request));
    }
    plan.parts = std::move(*parts);
    return plan;
}

asio::awaitable<void> TeacherEndpoint::send_one_by_one(Sending& sending) {
    while (!sending.failure && sending.next < sending.requests.size()) {
        const std::size_t index = sending.next++;
        auto operation = pool_.request(std::move(sending.requests[index]));
        auto response = co_await std::move(operation);
        if (response && is_success(*response)) {
            sending.responses[index] = std::move(*response);
            continue;
        }
        if (!sending.failure) {
            sending.failure = response ? failure_of_status(name_, *response) : response.error();
        }
        if (sending.group != nullptr) {
            sending.group->cancel();  // the other answers are useless now
        }
    }
}

asio::awaitable<FetchResult<std::vector<HttpResponse>>> TeacherEndpoint::send_all(std::vector<HttpRequest> requests,
                                                                                  std::uint32_t at_once) {
    Sending sending;
    sending.responses.resize(requests.size());
    sending.requests = std::move(requests);
    if (at_once <= 1 || sending.requests.size() <= 1) {
        co_await send_one_by_one(sending);
    } else {
        TaskGroup group(co_await asio::this_coro::executor);
        sending.group = &group;
        for (std::size_t i = 0; i < std::min<std::size_t>(at_once, sending.requests.size()); ++i) {
            if (!group.spawn(send_one_by_one(sending))) {
                break;  // a request has already failed
            }
        }
        co_await group.join();
    }
    if (sending.failure) {
        co_return std::move(*sending.failure);
    }
    std::vector<HttpResponse> responses;
    for (std::optional<HttpResponse>& response : sending.responses) {
        if (!response) {
            throw boost::system::system_error(asio::error::operation_aborted);
        }
        responses.push_back(std::move(*response));
    }
    co_return responses;
}

asio::awaitable<FetchResult<TeacherEndpoint::Answered>> TeacherEndpoint::carry_out(const TeacherCodec& codec,
                                                                                   const TokenBatch& tokens,
                                                                                   std::chrono::nanoseconds deadline,
                                                                                   AnswerBound bound) {
    auto planned = plan(codec, tokens, bound);
    if (!planned) {
        co_return FetchError{FailureKind::rejected, name_ + ": " + planned.error().message, std::nullopt};
    }
    auto operation = send_all(std::move(planned->requests), codec.max_parts_at_once());
    auto responses = co_await with_deadline(std::move(operation), deadline);
    if (!responses) {
        co_return late(name_, deadline);
    }
    if (!*responses) {
        co_return responses->error();
    }
    Answered answered;
    answered.parts = std::move(planned->parts);
    answered.responses = std::move(**responses);
    co_return answered;
}

asio::awaitable<FetchResult<EncodedAnswer>> TeacherEndpoint::request(std::shared_ptr<const TokenBatch> tokens,
                                                                     std::chrono::nanoseconds deadline) {
    const std::shared_ptr<const TeacherCodec> codec = codec_;
    auto answered = co_await carry_out(*codec, *tokens, deadline, AnswerBound::stated);
    if (!answered) {
        co_return answered.error();
    }
    const std::uint64_t wire_bytes = body_bytes(answered->responses);
    co_return EncodedAnswer(
        std::make_unique<AnswerDecoder>(name_, codec, std::move(tokens), *settings_, std::move(*answered)), wire_bytes);
}

asio::awaitable<FetchResult<EndpointAnswer>> TeacherEndpoint::ask(std::shared_ptr<const TeacherCodec> codec,
                                                                  std::shared_ptr<const TokenBatch> tokens,
                                                                  std::chrono::nanoseconds deadline,
                                                                  AnswerBound bound) {
    auto answered = co_await carry_out(*codec, *tokens, deadline, bound);
    if (!answered) {
        co_return answered.error();
    }
    auto decoder = std::make_unique<AnswerDecoder>(name_, codec, std::move(tokens), *settings_, std::move(*answered));
    auto work = [decoder = std::move(decoder)] { return decoder->decode_with_headers(); };
    co_return co_await run_on(settings_->decode, std::move(work));
}

}  // namespace distilld

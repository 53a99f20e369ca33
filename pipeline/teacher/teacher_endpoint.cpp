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

}  // namespace

TeacherEndpoint::TeacherEndpoint(asio::any_io_executor io, EndpointUrl url, std::shared_ptr<asio::ssl::context> tls,
                                 std::shared_ptr<TrafficCounters> traffic, HttpPoolOptions options,
                                 std::shared_ptr<const TeacherSettings> settings)
    : name_(url.name),
      pool_(std::move(io), std::move(url), std::move(tls), settings->buffers, std::move(traffic), std::move(options)),
      settings_(std::move(settings)) {}

Result<std::shared_ptr<const TeacherAdapter>> TeacherEndpoint::make_adapter(KserveDialect dialect, bool probing) const {
    TargetsWanted wanted;
    wanted.top_k = settings_->spec.top_k;
    wanted.vocabulary = settings_->vocabulary;
    wanted.probing = probing;
    wanted.response_limit =
        probing ? std::min(kProbeAnswerLimit, settings_->max_response_bytes) : settings_->max_response_bytes;
    if (settings_->spec.protocol == TeacherProtocol::seed) {
        return std::shared_ptr<const TeacherAdapter>(make_seed_adapter(url(), wanted, settings_->buffers));
    }
    auto adapter = make_kserve_adapter(url(), wanted, std::move(dialect));
    if (!adapter) {
        return Error{adapter.error().kind, name_ + ": " + adapter.error().message};
    }
    return std::shared_ptr<const TeacherAdapter>(std::move(*adapter));
}

asio::awaitable<FetchResult<HttpResponse>> TeacherEndpoint::send(HttpRequest request,
                                                                 std::chrono::nanoseconds deadline) {
    auto operation = pool_.request(std::move(request));
    auto limited = with_deadline(std::move(operation), deadline);
    auto response = co_await std::move(limited);
    if (!response) {
        co_return FetchError{FailureKind::timeout, name_ + ": no answer within " + in_seconds(deadline), std::nullopt};
    }
    co_return std::move(*response);
}

asio::awaitable<FetchResult<EndpointAnswer>> TeacherEndpoint::ask(std::shared_ptr<const TeacherAdapter> adapter,
                                                                  std::shared_ptr<const TokenBatch> tokens,
                                                                  std::chrono::nanoseconds deadline) {
    auto request = adapter->make_request(*tokens);
    if (!request) {
        co_return FetchError{FailureKind::rejected, name_ + ": " + request.error().message, std::nullopt};
    }
    auto sending = send(std::move(*request), deadline);
    auto response = co_await std::move(sending);
    if (!response) {
        co_return response.error();
    }
    if (!is_success(*response)) {
        co_return failure_of_status(name_, *response);
    }
    auto work = [adapter, tokens, vocabulary = settings_->vocabulary,
                 held = std::move(*response)]() -> Result<EndpointAnswer> {
        EndpointAnswer answer;
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
    auto decoding = run_on(settings_->decode, std::move(work));
    auto answer = co_await std::move(decoding);
    if (!answer) {
        co_return FetchError{FailureKind::bad_response, name_ + ": " + answer.error().message, std::nullopt};
    }
    co_return std::move(*answer);
}

}  // namespace distilld

#include "pipeline/teacher/protocols/kserve/adapter.hpp"

#include <string_view>
#include <utility>

#include "pipeline/teacher/protocols/kserve/infer_codec.hpp"
#include "pipeline/teacher/transport/http_failure.hpp"

namespace distilld::kserve {
namespace asio = boost::asio;

namespace {

constexpr const char* kNotReady = "the teacher is not ready: ";
constexpr const char* kNoMetadata = "the model's metadata cannot be read: ";
/// Triton's answer to the question whether it is ready, while it loads a model.
constexpr unsigned kTritonLoading = 400;

FetchError prefixed(const char* what, FetchError failure) {
    failure.message = what + failure.message;
    return failure;
}

FetchError refusal(FailureKind kind, std::string message) {
    return {kind, std::move(message), std::nullopt};
}

/// Paths beside the infer path `…/v2/models/NAME[/versions/V]/infer`.
struct Paths {
    std::string metadata;   ///< of the model
    std::string readiness;  ///< of the server
};

Result<Paths> paths_beside(const EndpointUrl& url) {
    constexpr std::string_view kInfer = "/infer";
    const std::size_t models = url.path.rfind("/v2/models/");
    if (!url.path.ends_with(kInfer) || models == std::string::npos) {
        return invalid_input("teacher endpoint '" + url.name +
                             "': the path of a kserve endpoint ends in /v2/models/NAME/infer");
    }
    Paths paths;
    paths.metadata = url.path.substr(0, url.path.size() - kInfer.size());
    paths.readiness = url.path.substr(0, models) + "/v2/health/ready";
    return paths;
}

class Adapter final : public TeacherProtocolAdapter {
  public:
    Adapter(const ProtocolSettings& settings, Paths paths)
        : url_(settings.url), model_(settings.model), paths_(std::move(paths)) {}

    Result<std::shared_ptr<const TeacherCodec>> assumed_codec(TargetsWanted wanted) const override {
        Dialect own;
        own.metadata = own_teacher_metadata(model_);
        return make_infer_codec(url_, wanted, std::move(own));
    }

    asio::awaitable<FetchResult<Negotiated>> negotiate(ProbeDialogue& dialogue, TargetsWanted wanted) const override {
        auto waiting = wait_until_ready(dialogue);
        const auto ready = co_await std::move(waiting);
        if (!ready) {
            co_return ready.error();
        }
        Dialect dialect;
        auto reading = read_metadata(dialogue);
        auto metadata = co_await std::move(reading);
        if (!metadata) {
            co_return metadata.error();
        }
        dialect.metadata = std::move(*metadata);
        auto asking = first_answer(dialogue, wanted, dialect);
        auto first = co_await std::move(asking);
        if (!first) {
            co_return failed_probe(first.error());
        }
        dialect.binary_tensor_answers = first->responses.front().header(kHeaderLengthField) != nullptr;
        if (first->targets.kind == TeacherTargets::Kind::topk && dialect.metadata.find_output("topk_ids") != nullptr) {
            dialect.honoured_k = first->targets.width;
        }
        auto codec = make_infer_codec(url_, wanted, std::move(dialect));
        if (!codec) {
            co_return failed_probe(refusal(FailureKind::bad_response, codec.error().message));
        }
        Negotiated negotiated;
        negotiated.codec = std::move(*codec);
        negotiated.answer = std::move(first->targets);
        co_return negotiated;
    }

  private:
    asio::awaitable<FetchResult<void>> wait_until_ready(ProbeDialogue& dialogue) const {
        auto asking = dialogue.send(make_get(paths_.readiness), kTritonLoading);
        const auto ready = co_await std::move(asking);
        if (!ready) {
            co_return prefixed(kNotReady, ready.error());
        }
        // A gateway may offer the model without the server's own health page.
        const bool no_such_page = ready->status == 404 || ready->status == 405;
        if (!is_success(*ready) && !no_such_page) {
            co_return prefixed(kNotReady, failure_of_status(dialogue.endpoint_name(), *ready));
        }
        co_return FetchResult<void>();
    }

    asio::awaitable<FetchResult<ModelMetadata>> read_metadata(ProbeDialogue& dialogue) const {
        auto asking = dialogue.send(make_get(paths_.metadata + url_.query), std::nullopt);
        const auto response = co_await std::move(asking);
        if (!response) {
            co_return prefixed(kNoMetadata, response.error());
        }
        if (!is_success(*response)) {
            co_return prefixed(kNoMetadata, failure_of_status(dialogue.endpoint_name(), *response));
        }
        const auto bytes = response->body->bytes();
        const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        auto metadata = parse_model_metadata(text);
        if (!metadata) {
            co_return refusal(FailureKind::bad_response,
                              dialogue.endpoint_name() + ": " + kNoMetadata + metadata.error().message);
        }
        co_return std::move(*metadata);
    }

    /// With binary tensors, or with JSON tensors where the server refuses those; `dialect` says which.
    asio::awaitable<FetchResult<EndpointAnswer>> first_answer(ProbeDialogue& dialogue, TargetsWanted wanted,
                                                              Dialect& dialect) const {
        const auto codec = make_infer_codec(url_, wanted, dialect);
        if (!codec) {
            co_return refusal(FailureKind::rejected, codec.error().message);
        }
        auto asking = dialogue.ask(*codec);
        auto answer = co_await std::move(asking);
        if (answer || not_up(answer.error().kind)) {
            co_return answer;
        }
        // MLServer refuses binary requests with 500 and no reason.
        dialect.binary_tensor_requests = false;
        const auto plain = make_infer_codec(url_, wanted, dialect);
        if (!plain) {
            co_return answer;
        }
        auto asking_again = dialogue.ask(*plain);
        auto second = co_await std::move(asking_again);
        if (!second && second.error().message != answer.error().message) {
            co_return refusal(answer.error().kind,
                              answer.error().message + " (and with JSON tensors: " + second.error().message + ")");
        }
        co_return second;
    }

    EndpointUrl url_;
    std::string model_;
    Paths paths_;
};

}  // namespace

Result<std::unique_ptr<TeacherProtocolAdapter>> make_protocol_adapter(const ProtocolSettings& settings) {
    auto paths = paths_beside(settings.url);
    if (!paths) {
        return paths.error();
    }
    return std::unique_ptr<TeacherProtocolAdapter>(std::make_unique<Adapter>(settings, std::move(*paths)));
}

}  // namespace distilld::kserve

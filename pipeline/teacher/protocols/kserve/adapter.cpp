#include "pipeline/teacher/protocols/kserve/adapter.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "net/http_failure.hpp"
#include "pipeline/teacher/protocols/kserve/infer_codec.hpp"
#include "pipeline/teacher/protocols/kserve/infer_inputs.hpp"
#include "pipeline/teacher/protocols/kserve/output_choice.hpp"
#include "pipeline/teacher/protocols/kserve/sample_codec.hpp"

namespace distilld::kserve {
namespace asio = boost::asio;

namespace {

constexpr const char* kNotReady = "the teacher is not ready: ";
constexpr const char* kNoMetadata = "the model's metadata cannot be read: ";
/// Triton's status for its readiness page while it loads a model.
constexpr unsigned kTritonLoading = 400;
/// The status of the metadata page for a model that the server does not have (yet).
constexpr unsigned kNoSuchModel = 404;
/// Tokens per position, to check that a head fits the hidden states.
constexpr std::uint32_t kTokensToCompare = 8;
constexpr std::string_view kModels = "/v2/models/";
constexpr std::string_view kInfer = "/infer";

FetchError prefixed(const char* what, FetchError failure) {
    failure.message = what + failure.message;
    return failure;
}

FetchError refusal(FailureKind kind, std::string message) {
    return {kind, std::move(message), std::nullopt};
}

/// Paths that belong to the infer path `…/v2/models/NAME[/versions/V]/infer`.
struct Paths {
    std::string metadata;   ///< of the model
    std::string readiness;  ///< of the server
};

Result<Paths> paths_beside(const EndpointUrl& url) {
    const std::size_t models = url.path.rfind(kModels);
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
        : url_(settings.url),
          model_(settings.model),
          buffers_(settings.buffers),
          samples_{settings.inputs, settings.outputs},
          paths_(std::move(paths)) {}

    Result<std::shared_ptr<const TeacherCodec>> assumed_codec(TargetsWanted wanted) const override {
        Dialect own;
        if (answers_samples()) {
            return codec_of(wanted, std::move(own));
        }
        own.metadata = own_teacher_metadata(model_);
        // The width of hidden states is unknown before the endpoint has been asked.
        if (wanted.targets == TargetsChoice::hidden) {
            wanted.targets = TargetsChoice::automatic;
        }
        return codec_of(wanted, std::move(own));
    }

    asio::awaitable<FetchResult<Negotiated>> negotiate(ProbeDialogue& dialogue, TargetsWanted wanted) const override {
        const auto ready = co_await wait_until_ready(dialogue);
        if (!ready) {
            co_return ready.error();
        }
        Dialect dialect;
        auto metadata = co_await read_metadata(dialogue);
        if (!metadata) {
            co_return metadata.error();
        }
        dialect.metadata = std::move(*metadata);
        if (const std::uint32_t vocabulary = vocabulary_of(dialect.metadata); vocabulary != 0) {
            wanted.vocabulary = vocabulary;
        }
        auto config = co_await read_config(dialogue, dialect.metadata);
        if (!config) {
            co_return config.error();
        }
        dialect.config = std::move(*config);
        auto first = co_await first_answer(dialogue, wanted, dialect);
        if (!first) {
            co_return failed_probe(first.error());
        }
        dialect.binary_tensor_answers = first->responses.front().header(kHeaderLengthField) != nullptr;
        const TeacherTargets& rows = first->targets;
        for (const SampleTensor& tensor : rows.tensors) {
            dialect.sample_bytes += tensor.values.bytes.size() / rows.rows;
        }
        const bool hidden = rows.kind == TeacherTargets::Kind::hidden_states;
        if (rows.kind == TeacherTargets::Kind::logits) {
            wanted.vocabulary = rows.width;
        }
        std::uint64_t row_numbers = hidden ? rows.width : wanted.vocabulary;
        if (rows.kind == TeacherTargets::Kind::topk && dialect.metadata.find_output("topk_ids") != nullptr) {
            dialect.honoured_k = rows.width;
            row_numbers = std::uint64_t{2} * rows.width;
        }
        if (const double numbers = static_cast<double>(row_numbers) * rows.rows * rows.columns; numbers > 0) {
            dialect.json_number_bytes = static_cast<double>(rows.wire_bytes) / numbers;
        }
        auto codec = codec_of(wanted, dialect);
        if (!codec) {
            co_return failed_probe(refusal(FailureKind::bad_response, codec.error().message));
        }
        Negotiated negotiated;
        negotiated.tokenizer.hash = text_parameter(dialect.metadata.parameters, "tokenizer_sha256");
        if (hidden) {
            negotiated.head =
                HeadOffer{paths_.metadata + "/head" + url_.query, head_sha256(dialect.metadata.parameters)};
            auto told = co_await own_rows(dialogue, wanted, std::move(dialect));
            if (!told) {
                co_return failed_probe(told.error());
            }
            negotiated.told = std::move(*told);
        }
        negotiated.codec = std::move(*codec);
        negotiated.answer = std::move(first->targets);
        co_return negotiated;
    }

  private:
    [[nodiscard]] bool answers_samples() const { return !samples_.outputs.empty(); }

    [[nodiscard]] Result<std::shared_ptr<const TeacherCodec>> codec_of(TargetsWanted wanted, Dialect dialect) const {
        return answers_samples() ? make_sample_codec(url_, samples_, std::move(dialect), buffers_)
                                 : make_infer_codec(url_, wanted, std::move(dialect), buffers_);
    }

    asio::awaitable<FetchResult<void>> wait_until_ready(ProbeDialogue& dialogue) const {
        const auto ready = co_await dialogue.send(make_get(paths_.readiness), kTritonLoading);
        if (!ready) {
            co_return prefixed(kNotReady, ready.error());
        }
        // A gateway may offer the model without the server's health page.
        const bool no_such_page = ready->status == 404 || ready->status == 405;
        if (!is_success(*ready) && !no_such_page) {
            co_return prefixed(kNotReady, failure_of_status(dialogue.page(paths_.readiness), *ready));
        }
        co_return FetchResult<void>();
    }

    asio::awaitable<FetchResult<ModelMetadata>> read_metadata(ProbeDialogue& dialogue) const {
        const std::string page = dialogue.page(paths_.metadata);
        const auto response = co_await dialogue.send(make_get(paths_.metadata + url_.query), kNoSuchModel);
        if (!response) {
            co_return prefixed(kNoMetadata, response.error());
        }
        if (!is_success(*response)) {
            co_return prefixed(kNoMetadata, failure_of_status(page, *response));
        }
        auto metadata = parse_model_metadata(body_text(*response));
        if (!metadata) {
            co_return refusal(FailureKind::bad_response, kNoMetadata + page + ": " + metadata.error().message);
        }
        co_return std::move(*metadata);
    }

    /// Reads Triton's configuration of a model, which is outside of the protocol. Empty if the server has no such page,
    /// or if the metadata states the limits.
    asio::awaitable<FetchResult<ModelConfig>> read_config(ProbeDialogue& dialogue,
                                                          const ModelMetadata& metadata) const {
        if (metadata.parameters.contains("max_batch_size") || metadata.parameters.contains("max_tokens")) {
            co_return ModelConfig();
        }
        const auto response = co_await dialogue.send(make_get(paths_.metadata + "/config" + url_.query), std::nullopt);
        if (!response && is_outage(response.error().kind)) {
            co_return prefixed("the model's configuration cannot be read: ", response.error());
        }
        if (!response || !is_success(*response)) {
            co_return ModelConfig();
        }
        const auto config = parse_model_config(body_text(*response));
        co_return config ? *config : ModelConfig();  // an invalid configuration is ignored
    }

    /// Requests binary tensors, or JSON tensors if the server refuses those; sets `dialect` accordingly.
    asio::awaitable<FetchResult<EndpointAnswer>> first_answer(ProbeDialogue& dialogue, TargetsWanted wanted,
                                                              Dialect& dialect) const {
        const auto codec = codec_of(wanted, dialect);
        if (!codec) {
            co_return refusal(FailureKind::rejected, codec.error().message);
        }
        auto answer = co_await dialogue.ask(*codec);
        if (answer || is_outage(answer.error().kind)) {
            co_return answer;
        }
        // MLServer refuses binary requests with 500 and gives no reason.
        dialect.binary_tensor_requests = false;
        const auto plain = codec_of(wanted, dialect);
        if (!plain) {
            co_return answer;
        }
        auto second = co_await dialogue.ask(*plain);
        if (second) {
            co_return second;
        }
        FetchError failure = answer.error();
        if (second.error().message != failure.message) {
            failure.message += " (and with JSON tensors: " + second.error().message + ")";
        }
        // The metadata does not say which inputs may be left out.
        if (const auto left_out = inputs_left_out(dialect.metadata); !left_out.empty() && !answers_samples()) {
            failure.message += "; inputs of the model that were not sent: " + names_of(left_out);
        }
        co_return failure;
    }

    /// The model's own rows for the probe's tokens, to check its head against them; empty if the model has no such
    /// output.
    asio::awaitable<FetchResult<std::optional<TeacherTargets>>> own_rows(ProbeDialogue& dialogue, TargetsWanted wanted,
                                                                         Dialect dialect) const {
        wanted.top_k = kTokensToCompare;
        wanted.targets = TargetsChoice::topk;
        dialect.honoured_k = 0;
        const auto codec = make_infer_codec(url_, wanted, std::move(dialect), buffers_);
        if (!codec) {
            co_return std::optional<TeacherTargets>();
        }
        auto answer = co_await dialogue.ask(*codec);
        if (!answer) {
            co_return answer.error();
        }
        co_return std::optional<TeacherTargets>(std::move(answer->targets));
    }

    EndpointUrl url_;
    std::string model_;
    std::shared_ptr<BufferPool> buffers_;
    SampleNames samples_;
    Paths paths_;
};

}  // namespace

std::string complete_path(std::string path) {
    const std::size_t models = path.rfind(kModels);
    if (models == std::string::npos) {
        return path;
    }
    std::string_view model = std::string_view(path).substr(models + kModels.size());
    if (model.ends_with('/')) {
        model.remove_suffix(1);
    }
    // NAME, or NAME/versions/VERSION.
    constexpr std::string_view kVersions = "/versions/";
    const std::size_t slash = model.find('/');
    const std::string_view version = model.substr(std::min(slash, model.size()));
    const bool versioned = version.starts_with(kVersions) && version.size() > kVersions.size() &&
                           version.find('/', kVersions.size()) == std::string_view::npos;
    if (model.empty() || slash == 0 || (!version.empty() && !versioned)) {
        return path;
    }
    return path.substr(0, models) + std::string(kModels) + std::string(model) + std::string(kInfer);
}

Result<std::unique_ptr<TeacherProtocolAdapter>> make_protocol_adapter(const ProtocolSettings& settings) {
    auto paths = paths_beside(settings.url);
    if (!paths) {
        return paths.error();
    }
    return std::unique_ptr<TeacherProtocolAdapter>(std::make_unique<Adapter>(settings, std::move(*paths)));
}

}  // namespace distilld::kserve

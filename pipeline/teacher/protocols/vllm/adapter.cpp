#include "pipeline/teacher/protocols/vllm/adapter.hpp"

#include <string_view>
#include <utility>

#include "pipeline/teacher/protocols/model_list.hpp"
#include "pipeline/teacher/protocols/prompt_scoring.hpp"
#include "pipeline/teacher/protocols/vllm/codec.hpp"

namespace distilld::vllm {
namespace asio = boost::asio;

namespace {

constexpr std::string_view kCompletions = "/v1/completions";
constexpr std::string_view kGenerate = "/inference/v1/generate";

/// What the server says of its own limit on k, with the way out.
FetchError explained(FetchError failure) {
    if (failure.message.find("rompt logprobs of") != std::string::npos) {
        failure.message += " (start vLLM with --max-logprobs, or lower /teacher/top_k)";
    }
    return failure;
}

class Adapter final : public TeacherProtocolAdapter {
  public:
    Adapter(const ProtocolSettings& settings, Route route, std::string models_target)
        : route_(route),
          target_(settings.url.target()),
          model_(settings.model),
          buffers_(settings.buffers),
          models_target_(std::move(models_target)) {}

    Result<std::shared_ptr<const TeacherCodec>> assumed_codec(TargetsWanted wanted) const override {
        return make_codec(options(wanted));
    }

    asio::awaitable<FetchResult<Negotiated>> negotiate(ProbeDialogue& dialogue, TargetsWanted wanted) const override {
        CodecOptions learnt = options(wanted);
        auto listing = ask_for_models(dialogue, models_target_);
        const auto models = co_await std::move(listing);
        if (!models) {
            co_return failed_probe(models.error());
        }
        if (*models) {
            const ListedModel* model = find_model(**models, model_);
            if (model == nullptr) {
                co_return failed_probe({FailureKind::rejected,
                                        dialogue.page(models_target_) + " lists the models " + names_of(**models) +
                                            " and not '" + model_ + "' (/teacher/model)",
                                        std::nullopt});
            }
            learnt.max_model_len = model->max_tokens;
        }
        auto asking = dialogue.ask(make_codec(learnt));
        auto answer = co_await std::move(asking);
        if (!answer) {
            co_return failed_probe(explained(answer.error()));
        }
        Negotiated negotiated;
        negotiated.answer = std::move(answer->targets);
        learnt.entry_bytes = entry_bytes_of(negotiated.answer);
        negotiated.codec = make_codec(learnt);
        co_return negotiated;
    }

  private:
    [[nodiscard]] CodecOptions options(TargetsWanted wanted) const {
        CodecOptions options;
        options.route = route_;
        options.target = target_;
        options.model = model_;
        options.wanted = wanted;
        options.buffers = buffers_;
        return options;
    }

    Route route_;
    std::string target_;
    std::string model_;
    std::shared_ptr<BufferPool> buffers_;
    std::string models_target_;
};

Result<std::unique_ptr<TeacherProtocolAdapter>> make_adapter(const ProtocolSettings& settings, Route route,
                                                             std::string_view ending) {
    auto models = models_page_beside(settings.url, ending);
    if (!models) {
        return models.error();
    }
    return std::unique_ptr<TeacherProtocolAdapter>(std::make_unique<Adapter>(settings, route, std::move(*models)));
}

}  // namespace

Result<std::unique_ptr<TeacherProtocolAdapter>> make_completions_adapter(const ProtocolSettings& settings) {
    return make_adapter(settings, Route::completions, kCompletions);
}

Result<std::unique_ptr<TeacherProtocolAdapter>> make_generate_adapter(const ProtocolSettings& settings) {
    return make_adapter(settings, Route::generate, kGenerate);
}

std::string complete_path(std::string path) {
    while (path.ends_with('/')) {
        path.pop_back();
    }
    return path.ends_with("/v1") ? path + "/completions" : path;
}

}  // namespace distilld::vllm

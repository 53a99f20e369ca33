#include "pipeline/teacher/protocols/vllm/adapter.hpp"

#include <string_view>
#include <utility>

#include "pipeline/teacher/protocols/model_list.hpp"
#include "pipeline/teacher/protocols/prompt_scoring.hpp"
#include "pipeline/teacher/protocols/tokenize_route.hpp"
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
    /// What the server has beside the route.
    struct Pages {
        std::string models;
        std::string tokenize;
        std::string generate;
    };

    Adapter(const ProtocolSettings& settings, Route route, Pages pages)
        : route_(route),
          target_(settings.url.target()),
          model_(settings.model),
          buffers_(settings.buffers),
          pages_(std::move(pages)) {}

    Result<std::shared_ptr<const TeacherCodec>> assumed_codec(TargetsWanted wanted) const override {
        return make_codec(options(wanted));
    }

    asio::awaitable<FetchResult<Negotiated>> negotiate(ProbeDialogue& dialogue, TargetsWanted wanted) const override {
        CodecOptions learnt = options(wanted);
        const auto models = co_await ask_for_models(dialogue, pages_.models);
        if (!models) {
            co_return failed_probe(models.error());
        }
        if (*models) {
            const ListedModel* model = find_model(**models, model_);
            if (model == nullptr) {
                co_return failed_probe({FailureKind::rejected,
                                        dialogue.page(pages_.models) + " lists the models " + names_of(**models) +
                                            " and not '" + model_ + "' (/teacher/model)",
                                        std::nullopt});
            }
            learnt.max_model_len = model->max_tokens;
        }
        auto answer = co_await dialogue.ask(make_codec(learnt));
        if (!answer) {
            co_return failed_probe(explained(answer.error()));
        }
        Negotiated negotiated;
        negotiated.answer = std::move(answer->targets);
        learnt.entry_bytes = entry_bytes_of(negotiated.answer);
        negotiated.codec = make_codec(learnt);
        auto tokenizer = co_await ask_to_tokenize(dialogue, pages_.tokenize, model_);
        if (!tokenizer) {
            co_return failed_probe(tokenizer.error());
        }
        negotiated.tokenizer = std::move(*tokenizer);
        if (route_ == Route::completions) {
            const auto there = co_await has_generate_route(dialogue, pages_.generate);
            if (!there) {
                co_return failed_probe(there.error());
            }
            negotiated.note = *there ? "its " + std::string(kGenerate) +
                                           " makes its answers several times cheaper: /teacher/protocol auto takes it"
                                     : "vllm serve --enable-scale-out makes its answers several times cheaper, and "
                                       "/teacher/protocol auto takes that route then";
        }
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
    Pages pages_;
};

Result<std::unique_ptr<TeacherProtocolAdapter>> make_adapter(const ProtocolSettings& settings, Route route,
                                                             std::string_view ending) {
    auto models = page_beside(settings.url, ending, "/v1/models");
    if (!models) {
        return models.error();
    }
    Adapter::Pages pages{std::move(*models), page_beside(settings.url, ending, "/tokenize").value(),
                         page_beside(settings.url, ending, kGenerate).value()};
    return std::unique_ptr<TeacherProtocolAdapter>(std::make_unique<Adapter>(settings, route, std::move(pages)));
}

}  // namespace

Result<std::unique_ptr<TeacherProtocolAdapter>> make_completions_adapter(const ProtocolSettings& settings) {
    return make_adapter(settings, Route::completions, kCompletions);
}

Result<std::unique_ptr<TeacherProtocolAdapter>> make_generate_adapter(const ProtocolSettings& settings) {
    return make_adapter(settings, Route::generate, kGenerate);
}

asio::awaitable<FetchResult<bool>> has_generate_route(ProbeDialogue& dialogue, std::string target) {
    HttpRequest request;
    request.target = std::move(target);
    request.content_type = kJsonContentType;
    request.body = std::make_shared<const std::string>("{}");
    const auto response = co_await dialogue.send(std::move(request), std::nullopt);
    if (!response) {
        co_return response.error();
    }
    // A request without its fields is at fault where the route is there: 400 or 422.
    co_return response->status == 400 || response->status == 422;
}

std::string complete_path(std::string path) {
    while (path.ends_with('/')) {
        path.pop_back();
    }
    return path.ends_with("/v1") ? path + "/completions" : path;
}

}  // namespace distilld::vllm

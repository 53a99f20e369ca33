#include "pipeline/teacher/protocols/vllm.hpp"

#include <boost/json/value.hpp>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_text.hpp"
#include "pipeline/teacher/protocols/number_text.hpp"
#include "pipeline/teacher/protocols/prompt_scoring.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"
#include "pipeline/teacher/protocols/server_signs.hpp"

namespace distilld::vllm {

namespace asio = boost::asio;
namespace od = simdjson::ondemand;

namespace {

/// The two routes of vLLM for log-probabilities of a prompt.
enum class Route {
    completions,  ///< POST /v1/completions: many prompts per request
    generate,     ///< POST /inference/v1/generate: tokens in, tokens out; one prompt per request
};

struct CodecOptions {
    Route route = Route::completions;
    std::string target;  ///< path and query
    std::string model;
    TargetsWanted wanted;
    std::uint64_t max_model_len = 0;  ///< tokens of a prompt and its generated tokens; 0 = unknown
    double entry_bytes = 0;           ///< average JSON bytes per entry of a row; 0 = unknown yet
    std::shared_ptr<BufferPool> buffers = std::make_shared<BufferPool>();  ///< for the rows
};

/// vLLM's default of VLLM_MAX_COMPLETION_PROMPTS.
constexpr std::uint64_t kMaxPrompts = 1024;
/// Maximum JSON bytes per entry, averaged over a row: id, log-probability, rank, and the token's text, which may take
/// six bytes per byte.
constexpr std::uint64_t kEntryBytes = 512;
/// Sequences of one micro-batch in flight if a request takes one: vLLM batches them again.
constexpr std::uint32_t kMaxSequencesAtOnce = 8;
/// vLLM generates at least one token.
constexpr std::uint64_t kGenerated = 1;

/// The id in the name of a row's member: `335`, or `token_id:335`.
std::optional<std::uint32_t> id_of(od::raw_json_string key) {
    constexpr std::string_view kPrefix = "token_id:";
    const char* text = key.raw();
    if (*text == kPrefix.front() && std::strncmp(text, kPrefix.data(), kPrefix.size()) == 0) {
        text += kPrefix.size();
    }
    std::uint64_t id = 0;
    const char* const end = read_magnitude(text, id);
    return end != nullptr && *end == '"' && id <= std::numeric_limits<std::uint32_t>::max()
               ? std::optional(static_cast<std::uint32_t>(id))
               : std::nullopt;
}

/// The raw key up to its closing quote, the first one without a backslash.
std::string text_of(od::raw_json_string key) {
    const char* end = key.raw();
    while (*end != '"') {
        end += *end == '\\' ? 2 : 1;
    }
    return {key.raw(), end};
}

void read_entry(od::value value, PromptRows& rows) {
    od::object row;
    if (value.get_object().get(row) != simdjson::SUCCESS) {
        fail_answer(rows.where() + " is not an object");
    }
    for (auto member : row) {
        const od::raw_json_string key = member.key();
        const auto id = id_of(key);
        if (!id) {
            fail_answer(rows.where() + " names a token by its text ('" + text_of(key) +
                        "'): ids are needed, texts collide");
        }
        od::value number;
        std::string_view token;
        float log_probability = 0;
        // read_float rejects a string or an object, too.
        if (member.value().find_field_unordered("logprob").get(number) == simdjson::SUCCESS) {
            token = number.raw_json_token();
        }
        const char* const end = token.data() + token.size();
        const char* const behind = token.empty() ? nullptr : read_float(token.data(), end, log_probability);
        if (behind == nullptr || skip_blanks(behind) < end) {
            fail_answer(rows.where() + ", id " + std::to_string(*id) + " has no 'logprob' that is a number");
        }
        rows.add(*id, log_probability);
    }
    if (!rows.names_own_token()) {
        fail_answer(rows.where() + " does not name the prompt's own token " + std::to_string(rows.prompt_token()) +
                    ": these rows do not belong to this prompt");
    }
    rows.end();
}

/// Reads `prompt_logprobs` of one prompt.
template <class Value>
void read_prompt(Value value, std::uint32_t row, PromptRows& rows) {
    const std::string where = "'prompt_logprobs' of sequence " + std::to_string(row);
    std::size_t token = 0;
    for (auto entry : json_array(value, where)) {
        if (token == rows.prompt(row).size()) {
            fail_answer(where + " has more than the " + std::to_string(token) + " tokens of the prompt");
        }
        rows.begin(row, token);
        if (token == 0) {
            // The first token has no row: a server that sends one aligns rows differently from vLLM.
            if (!entry.is_null()) {
                fail_answer(where + " does not begin with null: its rows are not aligned as vLLM's are");
            }
        } else {
            read_entry(entry.value(), rows);
        }
        ++token;
    }
    if (token != rows.prompt(row).size()) {
        fail_answer(where + " has " + std::to_string(token) + " entries, the prompt has " +
                    std::to_string(rows.prompt(row).size()) + " tokens");
    }
}

[[noreturn]] void fail_ignored() {
    fail_answer("the answer has no 'prompt_logprobs': the server ignored the request for them (is it vLLM?)");
}

void read_completions(od::object answer, PromptRows& rows, std::uint32_t prompts) {
    std::uint32_t row = 0;
    for (auto choice : json_array(answer.find_field_unordered("choices"), "'choices'")) {
        if (row == prompts) {
            fail_answer("'choices' has more than one for each of the " + std::to_string(prompts) + " prompts");
        }
        bool found = false;
        for (auto field : choice.get_object()) {
            const std::string_view key = field.unescaped_key();
            if (std::uint64_t index = 0;
                key == "index" && (field.value().get(index) != simdjson::SUCCESS || index != row)) {
                fail_answer("'choices' are not in the order of the prompts");
            }
            if (key == "prompt_logprobs") {
                read_prompt(field.value(), row, rows);
                found = true;
            }
        }
        if (!found) {
            fail_ignored();
        }
        ++row;
    }
    if (row != prompts) {
        fail_answer("'choices' has " + std::to_string(row) + ", one for each of " + std::to_string(prompts) +
                    " prompts was asked for");
    }
}

PromptScoringCodec::Options scoring_options(const CodecOptions& options) {
    PromptScoringCodec::Options scoring;
    scoring.target = options.target;
    scoring.wanted = options.wanted;
    scoring.max_entry_bytes = kEntryBytes;
    scoring.entry_bytes = options.entry_bytes;
    scoring.max_tokens = options.max_model_len;
    scoring.generated = kGenerated;
    scoring.buffers = options.buffers;
    return scoring;
}

/// Requests `prompt_logprobs` and reads them. Both routes answer with one array per prompt and one entry per token:
/// null, then objects of k or k + 1 members, keyed by the decimal token id. The prompt's own token is always included.
class Codec final : public PromptScoringCodec {
  public:
    explicit Codec(const CodecOptions& options)
        : PromptScoringCodec(scoring_options(options)), route_(options.route), model_(options.model) {}

    Result<std::vector<RequestPart>> plan_requests(const TokenBatch& tokens) const override {
        auto whole = PromptScoringCodec::plan_requests(tokens);
        if (!whole) {
            return whole;
        }
        RequestLimits limits;
        limits.max_rows = route_ == Route::completions ? kMaxPrompts : 1;
        return split_rows(tokens, limits);
    }

    std::uint32_t max_parts_at_once() const noexcept override {
        return route_ == Route::completions ? 1 : kMaxSequencesAtOnce;
    }

    std::string description() const override {
        return (route_ == Route::completions ? "vLLM completions, " : "vLLM generate, ") + rows_wanted();
    }

  protected:
    std::string request_body(const TokenBatch& tokens, const RequestPart& part, std::uint32_t entries) const override {
        const bool completions = route_ == Route::completions;
        std::string body = R"({"model":)" + to_text(boost::json::value(model_));
        body += completions ? R"(,"prompt":[)" : R"(,"token_ids":)";
        append_prompts(body, tokens, part);
        body += completions ? R"(],"max_tokens":1,"temperature":0,"prompt_logprobs":)"
                            : R"(,"sampling_params":{"max_tokens":1,"temperature":0,"detokenize":false,)"
                              R"("prompt_logprobs":)";
        // -1 requests the teacher's whole vocabulary, which may be larger than the student's.
        const std::string asked = asks_for_all() ? "-1" : std::to_string(entries);
        return body + asked + (completions ? "}" : "}}");
    }

    void read_rows(od::document& document, const RequestPart& part, PromptRows& rows) const override {
        od::object answer;
        if (document.get_object().get(answer) != simdjson::SUCCESS) {
            fail_answer("the answer is not a JSON object");
        }
        if (route_ == Route::completions) {
            read_completions(answer, rows, part.rows);
            return;
        }
        od::value prompt;
        if (answer.find_field_unordered("prompt_logprobs").get(prompt) != simdjson::SUCCESS) {
            fail_ignored();
        }
        read_prompt(prompt, 0, rows);
    }

  private:
    Route route_;
    std::string model_;
};

constexpr std::string_view kCompletions = "/v1/completions";
constexpr std::string_view kGenerate = "/inference/v1/generate";

/// Adds a remedy to the server's message about its limit on k.
FetchError explained(FetchError failure) {
    if (failure.message.find("rompt logprobs of") != std::string::npos) {
        failure.message += " (start vLLM with --max-logprobs, or lower /teacher/top_k)";
    }
    return failure;
}

class Adapter final : public TeacherProtocolAdapter {
  public:
    /// Other pages of the server.
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
        return std::make_shared<const Codec>(options(wanted));
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
        auto answer = co_await dialogue.ask(std::make_shared<const Codec>(learnt));
        if (!answer) {
            co_return failed_probe(explained(answer.error()));
        }
        Negotiated negotiated;
        negotiated.answer = std::move(answer->targets);
        learnt.entry_bytes = entry_bytes_of(negotiated.answer);
        negotiated.codec = std::make_shared<const Codec>(learnt);
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
                                           " makes its answers several times cheaper: /teacher/protocol auto uses it"
                                     : "vllm serve --enable-scale-out makes its answers several times cheaper, and "
                                       "/teacher/protocol auto then uses that route";
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
    // If the route exists, an empty request is invalid: 400 or 422.
    co_return response->status == 400 || response->status == 422;
}

std::string complete_path(std::string path) {
    while (path.ends_with('/')) {
        path.pop_back();
    }
    return path.ends_with("/v1") ? path + "/completions" : path;
}

}  // namespace distilld::vllm

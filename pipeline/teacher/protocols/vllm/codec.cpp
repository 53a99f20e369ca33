#include "pipeline/teacher/protocols/vllm/codec.hpp"

#include <boost/json/value.hpp>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_text.hpp"
#include "pipeline/teacher/protocols/number_text.hpp"
#include "pipeline/teacher/protocols/prompt_scoring.hpp"

namespace distilld::vllm {
namespace {

namespace od = simdjson::ondemand;

/// VLLM_MAX_COMPLETION_PROMPTS, unless its operator chose another.
constexpr std::uint64_t kMaxPrompts = 1024;
/// JSON of one entry, at most on the average of a row: id, log-probability, rank, and the token's text, in which each
/// byte may take six.
constexpr std::uint64_t kEntryBytes = 512;
/// Sequences of one micro-batch that are under way where a request takes one: vLLM puts them together again.
constexpr std::uint32_t kMaxSequencesAtOnce = 8;
/// The token that is generated because vLLM generates one at least.
constexpr std::uint64_t kGenerated = 1;

/// The id that a member of a row is named after: `335`, or `token_id:335`.
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

/// Texts may hold anything, but no quote that is not behind a backslash, and they end at one.
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
        // A text or an object is no number, which read_float sees as well.
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

/// `prompt_logprobs` of one prompt.
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
            // Nothing comes before the first token: a server that has a row for it counts otherwise than vLLM.
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
    fail_answer("the answer has no 'prompt_logprobs': the server passed over what was asked (is it vLLM?)");
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
        // All that it knows: as many as the student has may be fewer.
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

}  // namespace

std::shared_ptr<const TeacherCodec> make_codec(const CodecOptions& options) {
    return std::make_shared<Codec>(options);
}

}  // namespace distilld::vllm

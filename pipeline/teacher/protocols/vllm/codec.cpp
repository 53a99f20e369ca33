#include "pipeline/teacher/protocols/vllm/codec.hpp"

#include <boost/json/value.hpp>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_text.hpp"
#include "pipeline/teacher/protocols/json_answer.hpp"
#include "pipeline/teacher/protocols/prompt_rows.hpp"

namespace distilld::vllm {
namespace {

namespace od = simdjson::ondemand;

/// VLLM_MAX_COMPLETION_PROMPTS, unless its operator chose another.
constexpr std::uint64_t kMaxPrompts = 1024;
/// JSON of one entry, at most on the average of a row: id, log-probability, rank, and the token's text, in which each
/// byte may take six.
constexpr std::uint64_t kEntryBytes = 512;
/// What surrounds the rows.
constexpr std::uint64_t kEnvelopeBytes = 64U << 10U;
/// The token that is generated because vLLM generates one at least.
constexpr std::uint64_t kGenerated = 1;

/// The id that a member of a row is named after: `335`, or `token_id:335`.
std::optional<std::uint32_t> id_of(std::string_view key) {
    constexpr std::string_view kPrefix = "token_id:";
    if (key.starts_with(kPrefix)) {
        key.remove_prefix(kPrefix.size());
    }
    std::uint32_t id = 0;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
    if (end.ec != std::errc{} || end.ptr != key.data() + key.size()) {
        return std::nullopt;
    }
    return id;
}

void read_entry(od::value value, PromptRows& rows) {
    od::object row;
    if (value.get_object().get(row) != simdjson::SUCCESS) {
        fail_answer(rows.where() + " is not an object");
    }
    for (auto member : row) {
        const std::string_view key = member.unescaped_key();
        const auto id = id_of(key);
        if (!id) {
            fail_answer(rows.where() + " names a token by its text ('" + std::string(key) +
                        "'): ids are needed, texts collide");
        }
        double log_probability = 0;
        if (member.value()["logprob"].get_double().get(log_probability) != simdjson::SUCCESS) {
            fail_answer(rows.where() + ", id " + std::to_string(*id) + " has no 'logprob' that is a number");
        }
        rows.add(*id, static_cast<float>(log_probability));
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

class Codec final : public TeacherCodec {
  public:
    explicit Codec(CodecOptions options) : options_(std::move(options)) {}

    Result<std::vector<RequestPart>> plan_requests(const TokenBatch& tokens) const override {
        if (options_.max_model_len != 0) {
            for (std::uint32_t row = 0; row < tokens.rows; ++row) {
                if (const std::size_t length = prompt_of(tokens, row).size();
                    length + kGenerated > options_.max_model_len) {
                    return invalid_input("/dataset/sequence_length: a prompt of " + std::to_string(length) +
                                         " tokens and the one that is generated are above the " +
                                         std::to_string(options_.max_model_len) + " of the teacher (max_model_len)");
                }
            }
        }
        RequestLimits limits;
        limits.max_rows = options_.route == Route::completions ? kMaxPrompts : 1;
        return split_rows(tokens, limits);
    }

    Result<HttpRequest> make_request(const TokenBatch& tokens, const RequestPart& part) const override {
        const auto entries = entries_wanted(options_.wanted);
        if (!entries) {
            return entries.error();
        }
        const bool completions = options_.route == Route::completions;
        auto body = std::make_shared<std::string>(R"({"model":)" + to_text(boost::json::value(options_.model)));
        *body += completions ? R"(,"prompt":[)" : R"(,"token_ids":)";
        append_prompts(*body, tokens, part);
        *body += completions ? R"(],"max_tokens":1,"temperature":0,"prompt_logprobs":)"
                             : R"(,"sampling_params":{"max_tokens":1,"temperature":0,"detokenize":false,)"
                               R"("prompt_logprobs":)";
        *body += std::to_string(*entries) + (completions ? "}" : "}}");
        HttpRequest request;
        request.target = options_.target;
        request.content_type = kJsonContentType;
        request.body = std::move(body);
        return request;
    }

    Result<TeacherTargets> decode(const HttpResponse& response, const TokenBatch& tokens,
                                  const RequestPart& part) const override {
        const auto entries = entries_wanted(options_.wanted);
        if (!entries) {
            return entries.error();
        }
        return read_json_answer(*response.body, [&](od::document& document) {
            od::object answer;
            if (document.get_object().get(answer) != simdjson::SUCCESS) {
                fail_answer("the answer is not a JSON object");
            }
            PromptRows rows(tokens, part, options_.wanted, *entries);
            if (options_.route == Route::completions) {
                read_completions(answer, rows, part.rows);
            } else {
                od::value prompt;
                if (answer.find_field_unordered("prompt_logprobs").get(prompt) != simdjson::SUCCESS) {
                    fail_ignored();
                }
                read_prompt(prompt, 0, rows);
            }
            return rows.finish();
        });
    }

    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        const std::uint64_t positions = std::uint64_t{rows} * columns;
        AnswerSize size;
        if (const auto entries = entries_wanted(options_.wanted)) {
            // The prompt's own token comes beside the k.
            const std::uint64_t count = positions * (std::uint64_t{*entries} + 1);
            size.max_accepted_bytes = count * kEntryBytes + kEnvelopeBytes;
            size.max_wire_bytes = json_wire_bytes(count, options_.entry_bytes, size.max_accepted_bytes);
        }
        size.held_bytes = prompt_row_bytes(positions, options_.wanted);
        return size;
    }

    std::string description() const override {
        const std::string route = options_.route == Route::completions ? "vLLM completions" : "vLLM generate";
        return route + (options_.wanted.top_k == 0
                            ? ", all log-probabilities of the prompt"
                            : ", top " + std::to_string(options_.wanted.top_k) + " log-probabilities of the prompt");
    }

  private:
    CodecOptions options_;
};

}  // namespace

std::shared_ptr<const TeacherCodec> make_codec(CodecOptions options) {
    return std::make_shared<Codec>(std::move(options));
}

}  // namespace distilld::vllm

#include "pipeline/teacher/protocols/adapters.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline/teacher/protocols/base64_array.hpp"
#include "pipeline/teacher/protocols/prompt_scoring.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

namespace od = simdjson::ondemand;

/// Base64 bytes per id and log-probability, with a margin.
constexpr std::uint64_t kTrlEntryBytes = 16;

/// The members of an answer: rows of `shape` [sequences, maximum rows of a sequence, k].
struct Answer {
    std::vector<std::uint64_t> shape;
    std::vector<std::uint64_t> lengths;  ///< rows of each sequence
    std::optional<std::vector<float>> values;
    std::optional<std::vector<std::int32_t>> ids;
    std::optional<std::vector<std::int32_t>> own_ids;  ///< the prompt's token of each row, [sequences, maximum rows]
};

Answer read_members(od::object object) {
    Answer answer;
    for (auto field : object) {
        const std::string_view key = field.unescaped_key();
        const std::string name = "'" + std::string(key) + "'";
        od::value value = field.value();
        if (value.is_null()) {
            continue;
        }
        if (key == "shape") {
            answer.shape = json_numbers<std::uint64_t, std::uint64_t>(value, name);
        } else if (key == "completion_lengths") {
            answer.lengths = json_numbers<std::uint64_t, std::uint64_t>(value, name);
        } else if (key == "logprobs_b64") {
            answer.values = base64_elements<float>(json_text(value, name), name);
        } else if (key == "token_ids_b64") {
            answer.ids = base64_elements<std::int32_t>(json_text(value, name), name);
        } else if (key == "actual_token_ids_b64") {
            answer.own_ids = base64_elements<std::int32_t>(json_text(value, name), name);
        }
    }
    return answer;
}

/// The product; empty if it overflows.
std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
    std::uint64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}

void check_shape(const Answer& answer, std::uint32_t sequences) {
    if (!answer.values || !answer.ids || !answer.own_ids) {
        fail_answer(
            "the answer has no 'logprobs_b64', 'token_ids_b64' and 'actual_token_ids_b64': the server ignored the "
            "request for them (is it TRL's server, from TRL 1.1 on?)");
    }
    if (answer.shape.size() != 3 || answer.shape[0] != sequences || answer.lengths.size() != sequences) {
        fail_answer("'shape' and 'completion_lengths' are not of the " + std::to_string(sequences) +
                    " sequences that were asked for");
    }
    const auto rows = product(answer.shape[0], answer.shape[1]);
    const auto entries = rows ? product(*rows, answer.shape[2]) : std::nullopt;
    if (!entries || answer.values->size() != *entries || answer.ids->size() != *entries ||
        answer.own_ids->size() != *rows) {
        fail_answer("the arrays do not have the elements that 'shape' says");
    }
}

void read_sequence(const Answer& answer, std::uint32_t row, PromptRows& rows) {
    const std::size_t tokens = rows.prompt(row).size();
    if (answer.lengths[row] != tokens - 1 || answer.lengths[row] > answer.shape[1]) {
        fail_answer("sequence " + std::to_string(row) + " has " + std::to_string(answer.lengths[row]) +
                    " rows, one for each of its " + std::to_string(tokens) + " tokens but the first were asked for");
    }
    const std::size_t k = answer.shape[2];
    for (std::size_t token = 1; token < tokens; ++token) {
        rows.begin(row, token);
        const std::size_t at = std::size_t{row} * answer.shape[1] + token - 1;
        if ((*answer.own_ids)[at] != rows.prompt_token()) {
            fail_answer(rows.where() + " names token " + std::to_string((*answer.own_ids)[at]) + ", the prompt has " +
                        std::to_string(rows.prompt_token()) + " there: these rows do not belong to this prompt");
        }
        for (std::size_t i = 0; i < k; ++i) {
            const float log_probability = (*answer.values)[at * k + i];
            // −∞ pads rows that have fewer entries.
            if (log_probability > -std::numeric_limits<float>::infinity()) {
                rows.add(static_cast<std::uint32_t>((*answer.ids)[at * k + i]), log_probability);
            }
        }
        rows.end();
    }
}

class TrlCodec final : public PromptScoringCodec {
  public:
    using PromptScoringCodec::PromptScoringCodec;

    std::string description() const override { return "TRL, " + rows_wanted(); }

  protected:
    std::string request_body(const TokenBatch& tokens, const RequestPart& part, std::uint32_t entries) const override {
        std::string body = R"({"sequences":[)";
        append_prompts(body, tokens, part);
        body += R"(],"prompt_lengths":[)";
        for (std::uint32_t row = 0; row < part.rows; ++row) {
            body += row == 0 ? "1" : ",1";
        }
        body += R"(],"temperature":1.0,"response_format":"binary","top_logprobs":)";
        return body + std::to_string(entries) + "}";
    }

    void read_rows(od::document& document, const RequestPart& part, PromptRows& rows) const override {
        od::object object;
        if (document.get_object().get(object) != simdjson::SUCCESS) {
            fail_answer("the answer is not a JSON object");
        }
        const Answer answer = read_members(object);
        check_shape(answer, part.rows);
        for (std::uint32_t row = 0; row < part.rows; ++row) {
            read_sequence(answer, row, rows);
        }
    }
};

/// The server reports neither its model nor its limits.
class TrlAdapter final : public TeacherProtocolAdapter {
  public:
    explicit TrlAdapter(const ProtocolSettings& settings)
        : target_(settings.url.target()), buffers_(settings.buffers) {}

    Result<std::shared_ptr<const TeacherCodec>> assumed_codec(TargetsWanted wanted) const override {
        return make_codec(wanted);
    }

    asio::awaitable<FetchResult<Negotiated>> negotiate(ProbeDialogue& dialogue, TargetsWanted wanted) const override {
        Negotiated negotiated;
        negotiated.codec = make_codec(wanted);
        auto answer = co_await dialogue.ask(negotiated.codec);
        if (!answer) {
            co_return failed_probe(answer.error());
        }
        negotiated.answer = std::move(answer->targets);
        co_return negotiated;
    }

  private:
    [[nodiscard]] std::shared_ptr<const TeacherCodec> make_codec(TargetsWanted wanted) const {
        PromptScoringCodec::Options options;
        options.target = target_;
        options.wanted = wanted;
        options.max_entry_bytes = kTrlEntryBytes;
        options.buffers = buffers_;
        return std::make_shared<TrlCodec>(std::move(options));
    }

    std::string target_;
    std::shared_ptr<BufferPool> buffers_;
};

}  // namespace

Result<std::unique_ptr<TeacherProtocolAdapter>> make_trl_protocol_adapter(const ProtocolSettings& settings) {
    return std::unique_ptr<TeacherProtocolAdapter>(std::make_unique<TrlAdapter>(settings));
}

}  // namespace distilld

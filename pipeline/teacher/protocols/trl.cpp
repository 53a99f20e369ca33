#include "pipeline/teacher/protocols/trl.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline/teacher/protocols/base64_array.hpp"
#include "pipeline/teacher/protocols/json_answer.hpp"
#include "pipeline/teacher/protocols/prompt_rows.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

namespace od = simdjson::ondemand;

/// Base64 of an id and a log-probability, with a little to spare.
constexpr std::uint64_t kEntryBytes = 16;
constexpr std::uint64_t kEnvelopeBytes = 64U << 10U;

/// The members of an answer: rows of `shape` [sequences, most rows of one, k].
struct Answer {
    std::vector<std::uint64_t> shape;
    std::vector<std::uint64_t> lengths;  ///< rows of each sequence
    std::optional<std::vector<float>> values;
    std::optional<std::vector<std::int32_t>> ids;
    std::optional<std::vector<std::int32_t>> own_ids;  ///< the prompt's token of each row, [sequences, most rows]
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

/// The product, or nothing when it is above what an array can have.
std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) {
    std::uint64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}

void check_shape(const Answer& answer, std::uint32_t sequences) {
    if (!answer.values || !answer.ids || !answer.own_ids) {
        fail_answer(
            "the answer has no 'logprobs_b64', 'token_ids_b64' and 'actual_token_ids_b64': the server passed over what "
            "was asked (is it TRL's server, from TRL 1.1 on?)");
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

void read_rows(const Answer& answer, std::uint32_t row, PromptRows& rows) {
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
            fail_answer(rows.where() + " speaks of token " + std::to_string((*answer.own_ids)[at]) +
                        ", the prompt has " + std::to_string(rows.prompt_token()) +
                        " there: these rows do not belong to this prompt");
        }
        for (std::size_t i = 0; i < k; ++i) {
            const float log_probability = (*answer.values)[at * k + i];
            // What pads a row that has fewer: they do not count.
            if (log_probability > -std::numeric_limits<float>::infinity()) {
                rows.add(static_cast<std::uint32_t>((*answer.ids)[at * k + i]), log_probability);
            }
        }
        rows.end();
    }
}

class TrlCodec final : public TeacherCodec {
  public:
    TrlCodec(std::string target, TargetsWanted wanted) : target_(std::move(target)), wanted_(wanted) {}

    Result<HttpRequest> make_request(const TokenBatch& tokens, const RequestPart& part) const override {
        const auto entries = entries_wanted(wanted_);
        if (!entries) {
            return entries.error();
        }
        auto body = std::make_shared<std::string>(R"({"sequences":[)");
        append_prompts(*body, tokens, part);
        *body += R"(],"prompt_lengths":[)";
        for (std::uint32_t row = 0; row < part.rows; ++row) {
            *body += row == 0 ? "1" : ",1";
        }
        *body += R"(],"temperature":1.0,"response_format":"binary","top_logprobs":)" + std::to_string(*entries) + "}";
        HttpRequest request;
        request.target = target_;
        request.content_type = kJsonContentType;
        request.body = std::move(body);
        return request;
    }

    Result<TeacherTargets> decode(const HttpResponse& response, const TokenBatch& tokens,
                                  const RequestPart& part) const override {
        const auto entries = entries_wanted(wanted_);
        if (!entries) {
            return entries.error();
        }
        return read_json_answer(*response.body, [&](od::document& document) {
            od::object object;
            if (document.get_object().get(object) != simdjson::SUCCESS) {
                fail_answer("the answer is not a JSON object");
            }
            const Answer answer = read_members(object);
            check_shape(answer, part.rows);
            PromptRows rows(tokens, part, wanted_, *entries);
            for (std::uint32_t row = 0; row < part.rows; ++row) {
                read_rows(answer, row, rows);
            }
            return rows.finish();
        });
    }

    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        const std::uint64_t positions = std::uint64_t{rows} * columns;
        AnswerSize size;
        if (const auto entries = entries_wanted(wanted_)) {
            // The prompt's own token comes beside the k.
            size.max_wire_bytes = positions * (std::uint64_t{*entries} + 1) * kEntryBytes + kEnvelopeBytes;
        }
        size.held_bytes = prompt_row_bytes(positions, wanted_);
        return size;
    }

    std::string description() const override {
        return "TRL, top " + std::to_string(wanted_.top_k == 0 ? wanted_.vocabulary : wanted_.top_k) +
               " log-probabilities of the prompt";
    }

  private:
    std::string target_;
    TargetsWanted wanted_;
};

/// It tells nothing of its model or of its limits.
class TrlAdapter final : public TeacherProtocolAdapter {
  public:
    explicit TrlAdapter(const ProtocolSettings& settings) : target_(settings.url.target()) {}

    Result<std::shared_ptr<const TeacherCodec>> assumed_codec(TargetsWanted wanted) const override {
        return std::make_shared<TrlCodec>(target_, wanted);
    }

    asio::awaitable<FetchResult<Negotiated>> negotiate(ProbeDialogue& dialogue, TargetsWanted wanted) const override {
        Negotiated negotiated;
        negotiated.codec = std::make_shared<TrlCodec>(target_, wanted);
        auto asking = dialogue.ask(negotiated.codec);
        auto answer = co_await std::move(asking);
        if (!answer) {
            co_return failed_probe(answer.error());
        }
        negotiated.answer = std::move(answer->targets);
        co_return negotiated;
    }

  private:
    std::string target_;
};

}  // namespace

Result<std::unique_ptr<TeacherProtocolAdapter>> make_trl_protocol_adapter(const ProtocolSettings& settings) {
    return std::unique_ptr<TeacherProtocolAdapter>(std::make_unique<TrlAdapter>(settings));
}

}  // namespace distilld

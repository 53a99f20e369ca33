#include "pipeline/teacher/protocols/adapters.hpp"

#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline/teacher/protocols/base64_array.hpp"
#include "pipeline/teacher/protocols/prompt_scoring.hpp"
#include "pipeline/teacher/protocols/server_signs.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

namespace od = simdjson::ondemand;

constexpr std::string_view kGenerate = "/generate";
/// Maximum JSON bytes per entry `[-14.239895820617676,151935,null]`.
constexpr std::uint64_t kEntryBytes = 96;

/// The rows of one sequence in the flat form: `val` and `idx`, [rows, k], without the entries before the first row.
struct FlatRows {
    std::optional<std::vector<float>> values;
    std::optional<std::vector<std::int32_t>> ids;
    std::uint64_t k = 0;
    std::uint64_t null_prefix = 1;
};

/// `[log-probability or null, id, text or null]`.
struct Triple {
    std::optional<double> log_probability;
    std::uint32_t id = 0;
};

/// Reads a triple; errors name it by `where()`.
template <class Where>
Triple read_triple(simdjson::simdjson_result<od::value> value, const Where& where) {
    Triple triple;
    std::size_t place = 0;
    for (auto item : json_array(value, where)) {
        if (place == 0 && !item.is_null()) {
            double number = 0;
            if (item.get_double().get(number) != simdjson::SUCCESS) {
                fail_answer(where() + " holds a log-probability that is not a number");
            }
            triple.log_probability = number;
        } else if (place == 1) {
            std::uint64_t id = 0;
            if (item.get_uint64().get(id) != simdjson::SUCCESS || id > std::numeric_limits<std::uint32_t>::max()) {
                fail_answer(where() + " holds an invalid id");
            }
            triple.id = static_cast<std::uint32_t>(id);
        }
        ++place;
    }
    if (place < 2) {
        fail_answer(where() + " is not [log-probability, id, text]");
    }
    return triple;
}

/// Reads `meta_info` of one sequence, whose members may come in any order.
class SequenceReader {
  public:
    SequenceReader(std::uint32_t row, PromptRows& rows)
        : row_(row), rows_(rows), where_(" of sequence " + std::to_string(row)) {}

    void read(od::object meta) {
        for (auto field : meta) {
            member(field.unescaped_key(), field.value());
        }
        if (!tokens_seen_) {
            fail_answer("'meta_info'" + where_ +
                        " has no 'input_token_logprobs': the server ignored the request for them (is it SGLang?)");
        }
        if (flat_.values || flat_.ids) {
            put_flat();
        } else if (!nested_seen_) {
            fail_answer("'meta_info'" + where_ + " has no 'input_top_logprobs'");
        }
    }

  private:
    void member(std::string_view key, od::value value) {
        const std::string name = "'" + std::string(key) + "'" + where_;
        if (key == "input_token_logprobs") {
            check_tokens(value, name);
        } else if (key == "input_top_logprobs") {
            read_nested(value, name);
        } else if (key == "input_top_logprobs_shape") {
            const auto shape = json_numbers<std::uint64_t, std::uint64_t>(value, name);
            flat_.k = shape.size() == 2 ? shape[1] : 0;
        } else if (key == "input_top_logprobs_null_prefix") {
            if (value.get(flat_.null_prefix) != simdjson::SUCCESS) {
                fail_answer(name + " is not a number");
            }
        } else if (key == "input_top_logprobs_val_flat_b64") {
            flat_.values = base64_elements<float>(json_text(value, name), name);
        } else if (key == "input_top_logprobs_idx_flat_b64") {
            flat_.ids = base64_elements<std::int32_t>(json_text(value, name), name);
        } else if (key == "input_top_logprobs_val_flat") {
            flat_.values = json_numbers<float, double>(value, name);
        } else if (key == "input_top_logprobs_idx_flat") {
            flat_.ids = json_numbers<std::int32_t, std::int64_t>(value, name);
        } else if (key == "input_top_logprobs_val_flat_b64_dtype" && json_text(value, name) != "float32") {
            fail_answer(name + " is not float32");
        } else if (key == "input_top_logprobs_idx_flat_b64_dtype" && json_text(value, name) != "int32") {
            fail_answer(name + " is not int32");
        }
    }

    /// Checks that the tokens named in the answer are the prompt's.
    void check_tokens(od::value value, const std::string& name) {
        const auto& prompt = rows_.prompt(row_);
        std::size_t token = 0;
        for (auto entry : json_array(value, name)) {
            const Triple triple = read_triple(entry, [&name] { return name; });
            if (token >= prompt.size() || triple.id != static_cast<std::uint32_t>(prompt[token])) {
                fail_answer(name + " is not of the prompt that was sent: entry " + std::to_string(token) +
                            " names token " + std::to_string(triple.id));
            }
            ++token;
        }
        if (token != prompt.size()) {
            fail_answer(name + " has " + std::to_string(token) + " entries, the prompt has " +
                        std::to_string(prompt.size()) + " tokens");
        }
        tokens_seen_ = true;
    }

    void read_nested(od::value value, const std::string& name) {
        if (value.is_null()) {
            return;  // the flat form replaces it
        }
        const std::size_t tokens = rows_.prompt(row_).size();
        std::size_t token = 0;
        for (auto entry : json_array(value, name)) {
            if (token == tokens) {
                fail_answer(name + " has more than the " + std::to_string(tokens) + " tokens of the prompt");
            }
            if (token == 0) {
                // The first token has no row.
                if (!entry.is_null()) {
                    fail_answer(name + " does not begin with null: its rows are not aligned as SGLang's are");
                }
            } else {
                rows_.begin(row_, token);
                const auto where = [this] { return rows_.where(); };
                for (auto item : json_array(entry, where)) {
                    const Triple triple = read_triple(item, where);
                    if (!triple.log_probability) {
                        fail_answer(rows_.where() + " has null for a log-probability");
                    }
                    rows_.add(triple.id, static_cast<float>(*triple.log_probability));
                }
                rows_.end();
            }
            ++token;
        }
        if (token == 0) {
            return;  // the flat form replaces it
        }
        if (token != tokens) {
            fail_answer(name + " has " + std::to_string(token) + " entries, the prompt has " + std::to_string(tokens) +
                        " tokens");
        }
        nested_seen_ = true;
    }

    void put_flat() {
        const std::size_t tokens = rows_.prompt(row_).size();
        if (!flat_.values || !flat_.ids || flat_.values->size() != flat_.ids->size() || flat_.k == 0) {
            fail_answer("the flat rows" + where_ +
                        " have no shape, or ids and log-probabilities that do not go together");
        }
        const std::uint64_t k = flat_.k;
        if (flat_.null_prefix != 1 || k > flat_.values->size() + 1 || flat_.values->size() != (tokens - 1) * k) {
            fail_answer("the flat rows" + where_ + " hold " + std::to_string(flat_.values->size()) + " entries after " +
                        std::to_string(flat_.null_prefix) + " without, " + std::to_string(k) + " for each of " +
                        std::to_string(tokens) + " tokens but the first were asked for");
        }
        for (std::size_t token = 1; token < tokens; ++token) {
            const std::size_t at = (token - 1) * k;
            rows_.put(row_, token, std::span(*flat_.ids).subspan(at, k), std::span(*flat_.values).subspan(at, k));
        }
    }

    std::uint32_t row_;
    PromptRows& rows_;
    std::string where_;
    FlatRows flat_;
    bool tokens_seen_ = false;
    bool nested_seen_ = false;
};

void read_sequence(simdjson::simdjson_result<od::value> value, std::uint32_t row, PromptRows& rows) {
    od::object meta;
    if (value["meta_info"].get_object().get(meta) != simdjson::SUCCESS) {
        fail_answer("the answer for sequence " + std::to_string(row) +
                    " has no 'meta_info': the server ignored the request for them (is it SGLang?)");
    }
    SequenceReader(row, rows).read(meta);
}

class SglangCodec final : public PromptScoringCodec {
  public:
    using PromptScoringCodec::PromptScoringCodec;

    std::string description() const override { return "SGLang, " + rows_wanted(); }

  protected:
    std::string request_body(const TokenBatch& tokens, const RequestPart& part, std::uint32_t entries) const override {
        std::string body = R"({"input_ids":[)";
        append_prompts(body, tokens, part);
        body += R"(],"sampling_params":{"max_new_tokens":0,"temperature":0},"return_logprob":true,)"
                R"("logprob_start_len":0,"return_flat_raw_top_logprobs":true,)"
                R"("return_flat_raw_top_logprobs_b64":true,"top_logprobs_num":)";
        return body + std::to_string(entries) + "}";
    }

    void read_rows(od::document& document, const RequestPart& part, PromptRows& rows) const override {
        const od::json_type type = document.type();
        if (type == od::json_type::object && part.rows == 1) {
            read_sequence(document.get_value(), 0, rows);
            return;
        }
        if (type != od::json_type::array) {
            fail_answer("the answer is not an array with an object per sequence");
        }
        std::uint32_t row = 0;
        for (auto sequence : document.get_array()) {
            if (row == part.rows) {
                fail_answer("the answer has more than the " + std::to_string(part.rows) + " sequences asked for");
            }
            read_sequence(sequence, row, rows);
            ++row;
        }
        if (row != part.rows) {
            fail_answer("the answer has " + std::to_string(row) + " sequences, " + std::to_string(part.rows) +
                        " were asked for");
        }
    }
};

class SglangAdapter final : public TeacherProtocolAdapter {
  public:
    SglangAdapter(const ProtocolSettings& settings, std::string models_target)
        : target_(settings.url.target()),
          model_(settings.model),
          buffers_(settings.buffers),
          models_target_(std::move(models_target)),
          tokenize_target_(page_beside(settings.url, kGenerate, "/tokenize").value()) {}

    Result<std::shared_ptr<const TeacherCodec>> assumed_codec(TargetsWanted wanted) const override {
        return std::make_shared<SglangCodec>(options(wanted));
    }

    asio::awaitable<FetchResult<Negotiated>> negotiate(ProbeDialogue& dialogue, TargetsWanted wanted) const override {
        PromptScoringCodec::Options learnt = options(wanted);
        const auto models = co_await ask_for_models(dialogue, models_target_);
        if (!models) {
            co_return failed_probe(models.error());
        }
        // SGLang serves one model, and /generate takes no model name.
        if (*models && !(*models)->empty()) {
            learnt.max_tokens = (*models)->front().max_tokens;
        }
        auto answer = co_await dialogue.ask(std::make_shared<SglangCodec>(learnt));
        if (!answer) {
            co_return failed_probe(answer.error());
        }
        Negotiated negotiated;
        auto tokenizer = co_await ask_to_tokenize(dialogue, tokenize_target_, model_);
        if (!tokenizer) {
            co_return failed_probe(tokenizer.error());
        }
        negotiated.tokenizer = std::move(*tokenizer);
        negotiated.answer = std::move(answer->targets);
        learnt.entry_bytes = entry_bytes_of(negotiated.answer);
        negotiated.codec = std::make_shared<SglangCodec>(std::move(learnt));
        co_return negotiated;
    }

  private:
    [[nodiscard]] PromptScoringCodec::Options options(TargetsWanted wanted) const {
        PromptScoringCodec::Options options;
        options.target = target_;
        options.wanted = wanted;
        options.max_entry_bytes = kEntryBytes;
        options.buffers = buffers_;
        return options;
    }

    std::string target_;
    std::string model_;
    std::shared_ptr<BufferPool> buffers_;
    std::string models_target_;
    std::string tokenize_target_;
};

}  // namespace

Result<std::unique_ptr<TeacherProtocolAdapter>> make_sglang_protocol_adapter(const ProtocolSettings& settings) {
    auto models = page_beside(settings.url, kGenerate, "/v1/models");
    if (!models) {
        return models.error();
    }
    return std::unique_ptr<TeacherProtocolAdapter>(std::make_unique<SglangAdapter>(settings, std::move(*models)));
}

}  // namespace distilld

#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <charconv>
#include <limits>
#include <utility>

#include "base/json_text.hpp"
#include "server/teacher/teacher_codec.hpp"

namespace distilld::teacher {

namespace {

namespace json = boost::json;
using models::ScoreRequest;

/// Maximum characters of one logit with its comma: -1.17549435e-38,
constexpr std::uint64_t kLogitBytes = 16;

Result<void> read_row(const json::value& value, std::size_t row, ScoreRequest& score) {
    const std::string name = "input_ids[" + std::to_string(row) + "]";
    const json::array* ids = value.if_array();
    if (ids == nullptr) {
        return invalid_input(name + " is not a list of token ids");
    }
    if (ids->empty()) {
        return invalid_input(name + " is empty");
    }
    if (row == 0) {
        score.columns = static_cast<std::uint32_t>(ids->size());
    } else if (ids->size() != score.columns) {
        return invalid_input(name + " has " + std::to_string(ids->size()) + " ids and input_ids[0] has " +
                             std::to_string(score.columns) + ": rows must be equally long");
    }
    for (std::size_t column = 0; column < ids->size(); ++column) {
        const json::value& id = (*ids)[column];
        const std::int64_t* number = id.if_int64();
        if (number == nullptr || !std::in_range<std::int32_t>(*number)) {
            return invalid_input(name + "[" + std::to_string(column) + "] is " + to_text(id) + ", not a token id");
        }
        score.input_ids.push_back(static_cast<std::int32_t>(*number));
    }
    return {};
}

void append(std::string& text, float value) {
    std::array<char, 24> digits{};
    const auto written = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    text.append(digits.data(), written.ptr);
}

}  // namespace

Result<json::object> read_body(std::string_view body) {
    boost::system::error_code ec;
    json::value document = json::parse(body, ec);
    if (ec) {
        return invalid_input("the body is not JSON: " + ec.message());
    }
    if (!document.is_object()) {
        return invalid_input("the body is not a JSON object");
    }
    return std::move(document.get_object());
}

bool is_seed(const json::object& body) {
    return body.contains("input_ids") || body.contains("return_logits");
}

Result<SeedPlan> parse_seed(const json::object& body, const models::ServedModel& model, const ScoreLimits& limits) {
    SeedPlan plan;
    if (const json::value* name = body.if_contains("model"); name != nullptr && !name->is_null()) {
        if (!name->is_string()) {
            return invalid_input("model is not a string");
        }
        plan.model = std::string(name->get_string());
    }
    const json::value* wanted = body.if_contains("return_logits");
    if (wanted == nullptr || !wanted->is_bool() || !wanted->get_bool()) {
        return invalid_input("return_logits must be true with input_ids; a \"prompt\" is continued");
    }
    const json::value* ids = body.if_contains("input_ids");
    if (ids == nullptr || !ids->is_array()) {
        return invalid_input("input_ids must be a list of rows of token ids");
    }
    const json::array& rows = ids->get_array();
    if (rows.empty()) {
        return invalid_input("input_ids is empty");
    }
    for (std::size_t row = 0; row < rows.size(); ++row) {
        if (auto read = read_row(rows[row], row, plan.score); !read) {
            return read.error();
        }
    }
    if (plan.score.input_ids.size() > limits.max_tokens) {
        return invalid_input("input_ids holds " + std::to_string(plan.score.input_ids.size()) +
                             " tokens, a request may have " + std::to_string(limits.max_tokens) +
                             " (--max-batch-tokens)");
    }
    plan.score.rows = static_cast<std::uint32_t>(rows.size());
    plan.score.mode = ScoreRequest::Mode::logits;
    plan.score.logits_type = ScoreRequest::LogitsType::f32;
    plan.score.token_logprobs = false;
    if (auto checked = models::check_score_request(plan.score, model); !checked) {
        return checked.error();
    }
    plan.answer_bytes =
        std::uint64_t{plan.score.input_ids.size()} * model.vocabulary_size * (sizeof(float) + kLogitBytes);
    if (plan.answer_bytes > limits.max_answer_bytes) {
        return invalid_input("the logits of input_ids [" + std::to_string(plan.score.rows) + ", " +
                             std::to_string(plan.score.columns) + "] would take " + std::to_string(plan.answer_bytes) +
                             " bytes, the server's limit is " + std::to_string(limits.max_answer_bytes) +
                             ": send fewer tokens, or use /v2/models with top_k");
    }
    return plan;
}

std::string build_seed(const ScoreRequest& request, const models::ScoreResult& result, std::uint32_t vocabulary) {
    std::string text;
    text.reserve(result.logits_f32.size() * 12 + 64);
    text += "{\"logits\":[";
    const float* value = result.logits_f32.data();
    for (std::uint32_t row = 0; row < request.rows; ++row) {
        text += row == 0 ? "[" : ",[";
        for (std::uint32_t column = 0; column < request.columns; ++column) {
            text += column == 0 ? "[" : ",[";
            for (std::uint32_t id = 0; id < vocabulary; ++id, ++value) {
                if (id != 0) {
                    text += ',';
                }
                append(text, *value);
            }
            text += ']';
        }
        text += ']';
    }
    text += "]}";
    return text;
}

std::string error_body(std::string_view message) {
    return to_text(json::object{{"error", message}});
}

}  // namespace distilld::teacher

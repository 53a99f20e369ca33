#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/ascii.hpp"
#include "base/join.hpp"
#include "server/teacher/kserve_outputs.hpp"
#include "server/teacher/teacher_codec.hpp"

namespace distilld::teacher {

namespace {

using models::ScoreRequest;
using models::ServedModel;

bool known_output(std::string_view name) {
    return name == kTopkIds || name == kTopkLogprobs || name == kTokenLogprobs || name == kTailLogprob ||
           name == kLogits || name == kHiddenStates;
}

template <class T>
Result<std::vector<std::int32_t>> narrow(const kserve::InferTensor& tensor) {
    const std::vector<T> wide = kserve::copy_elements<T>(tensor);
    std::vector<std::int32_t> values(wide.size());
    for (std::size_t i = 0; i < wide.size(); ++i) {
        if (!std::in_range<std::int32_t>(wide[i])) {
            return invalid_input(tensor.name + " holds " + std::to_string(wide[i]) + " at index " + std::to_string(i) +
                                 ", which is not a 32-bit number");
        }
        values[i] = static_cast<std::int32_t>(wide[i]);
    }
    return values;
}

Result<std::vector<std::int32_t>> integers(const kserve::InferTensor& tensor) {
    if (tensor.datatype == "INT32") {
        return kserve::copy_elements<std::int32_t>(tensor);
    }
    if (tensor.datatype == "INT64") {
        return narrow<std::int64_t>(tensor);
    }
    if (tensor.datatype == "UINT32") {
        return narrow<std::uint32_t>(tensor);
    }
    return invalid_input(tensor.name + " has datatype " + tensor.datatype + ": INT32, INT64 or UINT32 is expected");
}

Result<void> read_input_ids(const kserve::InferTensor& tensor, const ScoreLimits& limits, ScoreRequest& score) {
    constexpr std::int64_t kMaxSide = std::numeric_limits<std::int32_t>::max();
    if (tensor.shape.size() != 2 || tensor.shape[0] > kMaxSide || tensor.shape[1] > kMaxSide) {
        return invalid_input("input_ids has shape " + shape_text(tensor.shape) + ": [rows, columns] is expected");
    }
    const auto positions = static_cast<std::uint64_t>(tensor.shape[0]) * static_cast<std::uint64_t>(tensor.shape[1]);
    if (positions > limits.max_tokens) {
        return invalid_input("input_ids holds " + std::to_string(positions) + " tokens, a request may have " +
                             std::to_string(limits.max_tokens) + " (--max-batch-tokens)");
    }
    auto ids = integers(tensor);
    if (!ids) {
        return ids.error();
    }
    score.rows = static_cast<std::uint32_t>(tensor.shape[0]);
    score.columns = static_cast<std::uint32_t>(tensor.shape[1]);
    score.input_ids = std::move(*ids);
    return {};
}

Result<void> read_inputs(const kserve::InferRequest& request, const ScoreLimits& limits, ScoreRequest& score) {
    bool found = false;
    for (const kserve::InferTensor& tensor : request.inputs) {
        if (tensor.name == "input_ids") {
            if (found) {
                return invalid_input("input_ids appears twice");
            }
            found = true;
            if (auto read = read_input_ids(tensor, limits, score); !read) {
                return read;
            }
        } else if (tensor.name == "seq_lens") {
            const bool column = tensor.shape.size() == 2 && tensor.shape[1] == 1;
            if (tensor.shape.size() != 1 && !column) {
                return invalid_input("seq_lens has shape " + shape_text(tensor.shape) + ": [rows] is expected");
            }
            auto lengths = integers(tensor);
            if (!lengths) {
                return lengths.error();
            }
            if (lengths->empty()) {
                return invalid_input("seq_lens is empty");
            }
            score.lengths = std::move(*lengths);
        } else {
            return invalid_input("the model has no input '" + tensor.name + "': it takes input_ids and seq_lens");
        }
    }
    if (!found) {
        return invalid_input("input_ids is missing");
    }
    return {};
}

Result<std::optional<std::string>> text_parameter(const kserve::Parameters& parameters, const char* name) {
    const auto found = parameters.find(name);
    if (found == parameters.end()) {
        return std::optional<std::string>();
    }
    if (const auto* text = std::get_if<std::string>(&found->second)) {
        return std::optional<std::string>(*text);
    }
    return invalid_input(std::string("parameters.") + name + " is not a string");
}

Result<void> read_hidden_type(const kserve::InferRequest& request, const ServedModel& model, ScoreRequest& score) {
    const auto named = text_parameter(request.parameters, "hidden_dtype");
    if (!named) {
        return named.error();
    }
    score.hidden_type = model.hidden_type;
    if (!*named) {
        return {};
    }
    const auto type = value_of(kHiddenDatatypes, **named);
    if (!type) {
        return invalid_input("parameters.hidden_dtype is '" + **named + "': FP16, BF16 or FP32 is expected");
    }
    score.hidden_type = *type;
    return {};
}

Result<void> read_parameters(const kserve::InferRequest& request, const ServedModel& model, ScoreRequest& score) {
    std::optional<std::int64_t> top_k;
    if (const auto found = request.parameters.find("top_k"); found != request.parameters.end()) {
        const auto* number = std::get_if<std::int64_t>(&found->second);
        if (number == nullptr || *number < 0) {
            return invalid_input("parameters.top_k is not a whole number of at least 0");
        }
        if (*number > std::int64_t{model.vocabulary_size}) {
            return invalid_input("parameters.top_k is " + std::to_string(*number) + ": the vocabulary has " +
                                 std::to_string(model.vocabulary_size) + " tokens");
        }
        top_k = *number;
    }
    auto mode = text_parameter(request.parameters, "mode");
    if (!mode) {
        return mode.error();
    }
    if (*mode) {
        const auto named = value_of(kModeNames, **mode);
        if (!named) {
            return invalid_input("parameters.mode is '" + **mode + "': topk, logits or hidden is expected");
        }
        score.mode = *named;
    } else {
        score.mode = top_k == 0 ? ScoreRequest::Mode::logits : ScoreRequest::Mode::topk;
        for (const auto& output : request.outputs) {
            if (output.name == kLogits || output.name == kHiddenStates) {
                score.mode = *mode_of(output.name);
            }
        }
    }
    if (score.mode == ScoreRequest::Mode::hidden && !model.head.is_there()) {
        return invalid_input("parameters.mode is 'hidden', but this server does not publish the model's head");
    }
    if (score.mode == ScoreRequest::Mode::topk) {
        if (top_k == 0) {
            return invalid_input("parameters.top_k is 0: 1 to " + std::to_string(model.vocabulary_size) +
                                 " is expected in mode topk");
        }
        score.top_k =
            static_cast<std::uint32_t>(top_k.value_or(std::int64_t{std::min(kDefaultTopK, model.vocabulary_size)}));
    }
    auto dtype = text_parameter(request.parameters, "logits_dtype");
    if (!dtype) {
        return dtype.error();
    }
    if (*dtype && **dtype != "FP16" && **dtype != "FP32") {
        return invalid_input("parameters.logits_dtype is '" + **dtype + "': FP16 or FP32 is expected");
    }
    const bool wide = *dtype && **dtype == "FP32";
    score.logits_type = wide ? ScoreRequest::LogitsType::f32 : ScoreRequest::LogitsType::f16;
    return read_hidden_type(request, model, score);
}

/// Sets the outputs in the order of the answer, and whether token_logprobs must be computed.
Result<void> plan_outputs(const kserve::InferRequest& request, InferPlan& plan) {
    const bool topk = plan.score.mode == ScoreRequest::Mode::topk;
    std::vector<std::string> names;
    for (const auto& output : request.outputs) {
        if (!known_output(output.name)) {
            return invalid_input("the model has no output '" + output.name +
                                 "': it has topk_ids, topk_logprobs, token_logprobs, tail_logprob, logits and "
                                 "hidden_states");
        }
        if (mode_of(output.name).value_or(plan.score.mode) != plan.score.mode) {
            return invalid_input("output " + output.name + " does not exist in mode " +
                                 name_of(kModeNames, plan.score.mode));
        }
        if (std::find(names.begin(), names.end(), output.name) != names.end()) {
            return invalid_input("output " + output.name + " is asked for twice");
        }
        names.push_back(output.name);
    }
    if (names.empty() && topk) {
        names = {std::string(kTopkIds), std::string(kTopkLogprobs), std::string(kTokenLogprobs),
                 std::string(kTailLogprob)};
    } else if (names.empty()) {
        names = {std::string(plan.score.mode == ScoreRequest::Mode::hidden ? kHiddenStates : kLogits)};
    }
    for (std::string& name : names) {
        const bool binary = request.wants_binary(name);
        plan.outputs.push_back({std::move(name), binary});
    }
    plan.score.token_logprobs = std::any_of(plan.outputs.begin(), plan.outputs.end(),
                                            [](const auto& output) { return output.name == kTokenLogprobs; });
    return {};
}

/// Numbers per position in an output.
std::uint64_t width_of(std::string_view output, const ScoreRequest& score, const ServedModel& model) {
    if (output == kLogits) {
        return model.vocabulary_size;
    }
    if (output == kHiddenStates) {
        return model.hidden_size;
    }
    return output == kTopkIds || output == kTopkLogprobs ? score.top_k : 1;
}

/// Bytes that are computed per position, whether requested or not.
std::uint64_t computed_bytes(const ScoreRequest& score, const ServedModel& model) {
    switch (score.mode) {
        case ScoreRequest::Mode::topk:
            return std::uint64_t{score.top_k} * 6 + 8;
        case ScoreRequest::Mode::logits:
            return std::uint64_t{model.vocabulary_size} *
                   (score.logits_type == ScoreRequest::LogitsType::f32 ? sizeof(float) : sizeof(std::uint16_t));
        case ScoreRequest::Mode::hidden:
            return std::uint64_t{model.hidden_size} *
                   (score.hidden_type == ScoreRequest::HiddenType::f32 ? sizeof(float) : sizeof(std::uint16_t));
    }
    return 0;
}

std::uint64_t answer_bytes(const InferPlan& plan, const ServedModel& model) {
    const ScoreRequest& score = plan.score;
    const std::uint64_t positions = std::uint64_t{score.rows} * score.columns;
    std::uint64_t total = positions * computed_bytes(score, model);
    for (const auto& output : plan.outputs) {
        if (!output.binary.value_or(false)) {
            total += positions * width_of(output.name, score, model) * kJsonNumberBytes;
        }
    }
    return total;
}

}  // namespace

Result<kserve::InferRequest> read_infer(std::shared_ptr<const std::string> body,
                                        std::optional<std::string_view> header_length, const ScoreLimits& limits) {
    std::optional<std::size_t> json_bytes;
    if (header_length) {
        json_bytes = number_from<std::size_t>(*header_length);
        if (!json_bytes) {
            return invalid_input(std::string(kserve::kHeaderLengthField) + " is '" + std::string(*header_length) +
                                 "', not a number of bytes");
        }
    }
    kserve::MessageLimits message_limits;
    message_limits.max_json_bytes = limits.max_body_bytes;
    message_limits.max_tensor_bytes = limits.max_body_bytes * 4;  // "1," in JSON becomes an INT64 of 8 bytes
    return kserve::parse_infer_request(std::move(body), json_bytes, message_limits);
}

Result<InferPlan> parse_infer(const kserve::InferRequest& request, const ServedModel& model,
                              const ScoreLimits& limits) {
    InferPlan plan;
    plan.id = request.id;
    if (auto read = read_inputs(request, limits, plan.score); !read) {
        return read.error();
    }
    if (auto read = read_parameters(request, model, plan.score); !read) {
        return read.error();
    }
    if (auto planned = plan_outputs(request, plan); !planned) {
        return planned.error();
    }
    if (auto checked = models::check_score_request(plan.score, model); !checked) {
        return checked.error();
    }
    plan.answer_bytes = answer_bytes(plan, model);
    if (plan.answer_bytes > limits.max_answer_bytes) {
        return invalid_input("the answer to input_ids " +
                             shape_text(std::array{std::int64_t{plan.score.rows}, std::int64_t{plan.score.columns}}) +
                             " would take " + std::to_string(plan.answer_bytes) + " bytes, the server's limit is " +
                             std::to_string(limits.max_answer_bytes) + ": send fewer tokens, or ask for top-k");
    }
    return plan;
}

}  // namespace distilld::teacher

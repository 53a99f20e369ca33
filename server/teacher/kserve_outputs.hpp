#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/enum_names.hpp"
#include "models/serving/teacher_scorer.hpp"

/// Names of outputs, modes and datatypes in the KServe protocol, for requests and answers of a teacher.
namespace distilld::teacher {

/// Characters per number in a JSON answer, with its comma: an estimate for the limit.
inline constexpr std::uint64_t kJsonNumberBytes = 14;

inline constexpr std::string_view kTopkIds = "topk_ids";
inline constexpr std::string_view kTopkLogprobs = "topk_logprobs";
inline constexpr std::string_view kTokenLogprobs = "token_logprobs";
inline constexpr std::string_view kTailLogprob = "tail_logprob";
inline constexpr std::string_view kLogits = "logits";
inline constexpr std::string_view kHiddenStates = "hidden_states";

/// The mode that computes an output; every mode computes token_logprobs.
[[nodiscard]] inline std::optional<models::ScoreRequest::Mode> mode_of(std::string_view output) {
    if (output == kTokenLogprobs) {
        return std::nullopt;
    }
    if (output == kLogits) {
        return models::ScoreRequest::Mode::logits;
    }
    return output == kHiddenStates ? models::ScoreRequest::Mode::hidden : models::ScoreRequest::Mode::topk;
}

inline constexpr EnumName<models::ScoreRequest::Mode> kModeNames[] = {
    {"topk", models::ScoreRequest::Mode::topk},
    {"logits", models::ScoreRequest::Mode::logits},
    {"hidden", models::ScoreRequest::Mode::hidden},
};

inline constexpr EnumName<models::ScoreRequest::HiddenType> kHiddenDatatypes[] = {
    {"FP16", models::ScoreRequest::HiddenType::f16},
    {"BF16", models::ScoreRequest::HiddenType::bf16},
    {"FP32", models::ScoreRequest::HiddenType::f32},
};

}  // namespace distilld::teacher

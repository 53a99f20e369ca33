#pragma once

#include <optional>
#include <string_view>

#include "models/serving/teacher_scorer.hpp"

/// Names of outputs, modes and datatypes in the KServe protocol, for requests and answers of a teacher.
namespace distilld::teacher {

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

[[nodiscard]] inline const char* name_of(models::ScoreRequest::Mode mode) {
    switch (mode) {
        case models::ScoreRequest::Mode::topk:
            return "topk";
        case models::ScoreRequest::Mode::logits:
            return "logits";
        case models::ScoreRequest::Mode::hidden:
            return "hidden";
    }
    return "";
}

[[nodiscard]] inline std::optional<models::ScoreRequest::Mode> mode_named(std::string_view name) {
    for (const auto mode :
         {models::ScoreRequest::Mode::topk, models::ScoreRequest::Mode::logits, models::ScoreRequest::Mode::hidden}) {
        if (name == name_of(mode)) {
            return mode;
        }
    }
    return std::nullopt;
}

[[nodiscard]] inline const char* datatype_of(models::ScoreRequest::HiddenType type) {
    switch (type) {
        case models::ScoreRequest::HiddenType::f16:
            return "FP16";
        case models::ScoreRequest::HiddenType::bf16:
            return "BF16";
        case models::ScoreRequest::HiddenType::f32:
            return "FP32";
    }
    return "";
}

}  // namespace distilld::teacher

#pragma once

#include "models/serving/teacher_scorer.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/teacher_head.hpp"

namespace distilld::models {

/// The request to a model for one micro-batch: topk with k > 0, else logits or hidden states, in the dtypes in which
/// `distilld teacher` sends them by default.
[[nodiscard]] ScoreRequest score_request(const TokenBatch& tokens, ScoreRequest::Mode mode, std::uint32_t top_k,
                                         const ServedModel& model);

/// The answer as targets, which own it and point into it.
[[nodiscard]] TeacherTargets scored_targets(const ScoreRequest& request, ScoreResult result, const ServedModel& model);

/// Bytes of the answer for this many positions.
[[nodiscard]] std::uint64_t scored_bytes(std::uint64_t positions, ScoreRequest::Mode mode, std::uint32_t top_k,
                                         const ServedModel& model) noexcept;

/// The head in the form for students; shares the values.
[[nodiscard]] TeacherHead teacher_head_of(const ServedModel& model);

}  // namespace distilld::models

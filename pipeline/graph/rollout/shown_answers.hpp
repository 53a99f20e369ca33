#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pipeline/core/micro_batch.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/teacher/rollout/kept_rollouts.hpp"

namespace distilld {

/// The text of ids. May throw ErrorException; empty: there is no tokenizer.
using TextOfIds = std::function<std::string(const std::vector<std::int32_t>&)>;

/// Whether some answers of this step are shown: those of the first 15 steps, of every second one up to 31, of every
/// fourth up to 63, and so on. So a run of any length shows few.
[[nodiscard]] bool shows_answers(std::uint64_t step);

/// The first answers in `answers`, those to `prompts`. Of a long prompt its end, of a long answer its beginning;
/// without a tokenizer their ids.
[[nodiscard]] RolloutEvent shown_answers(std::uint64_t step, const TokenBatch& prompts, const KeptAnswers& answers,
                                         std::uint32_t max_tokens, const TextOfIds& text);

}  // namespace distilld

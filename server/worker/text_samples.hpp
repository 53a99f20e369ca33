#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/data/tokenizer_choice.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld {

/// Texts of the student at a step (GraphHooks::sample). Compute thread.
using TextSamples = std::function<std::vector<SampledText>(Student& student, std::uint64_t step)>;

/// For spec.eval.sample_prompts, read and written by the tokenizer of `choice`; empty without prompts. Besides the
/// weights, sampled tokens depend only on training.seed, the step and the prompt's index. Errors name the field: no
/// tokenizer, or a prompt with ids outside the student's vocabulary (`vocabulary_size`).
[[nodiscard]] Result<TextSamples> make_text_samples(const JobSpec& spec,
                                                    const std::shared_ptr<const Tokenizer>& tokenizer,
                                                    const std::string& refusal, std::uint32_t vocabulary_size);

}  // namespace distilld

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/job_spec.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/data/tokenizer_choice.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld {

/// What the student says at a step (GraphHooks::sample). Compute thread.
using TextSamples = std::function<std::vector<SampledText>(Student& student, std::uint64_t step)>;

/// Of spec.eval.sample_prompts, read and written by the tokenizer of `choice`; empty where there are none. Drawn tokens
/// depend on training.seed, the step and the prompt's place, and on nothing else beside the weights. Errors name the
/// field: no tokenizer, or a prompt with ids that the student (of `vocabulary_size`) does not have.
[[nodiscard]] Result<TextSamples> make_text_samples(const JobSpec& spec,
                                                    const std::shared_ptr<const Tokenizer>& tokenizer,
                                                    const std::string& refusal, std::uint32_t vocabulary_size);

}  // namespace distilld

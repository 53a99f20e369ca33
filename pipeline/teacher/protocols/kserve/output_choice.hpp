#pragma once

#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/teacher/protocols/kserve/message.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld::kserve {

/// Which outputs of a model are asked for.
struct OutputChoice {
    TeacherTargets::Kind kind = TeacherTargets::Kind::topk;
    std::string output;  ///< of logits or hidden states; empty: topk_ids, topk_logprobs and, if there, tail_logprob
    std::uint32_t width = 0;  ///< of hidden states
};

/// Top-k outputs when the model has them and they are wanted; else full logits (`logits`, or TensorRT-LLM's
/// `context_logits`), which are reduced here when top-k is wanted; or `hidden_states`, when they are wanted or, with
/// TargetsChoice::automatic, take fewer bytes than full logits. Hidden states are on offer where the metadata's
/// parameters hold `hidden_size` and `head_sha256`. The error names the outputs, or the spec's field that they clash
/// with.
[[nodiscard]] Result<OutputChoice> choose_output(const ModelMetadata& metadata, TargetsWanted wanted);

/// A positive number among the parameters; 0 when there is none.
[[nodiscard]] std::uint64_t positive_parameter(const Parameters& parameters, const std::string& name);

/// A text among the parameters; empty when there is none.
[[nodiscard]] std::string text_parameter(const Parameters& parameters, const std::string& name);

/// The SHA-256 of the head that goes with the hidden states; empty when there is none.
[[nodiscard]] inline std::string head_sha256(const Parameters& parameters) {
    return text_parameter(parameters, "head_sha256");
}

/// Tokens that the model knows; 0 = the metadata does not tell.
[[nodiscard]] std::uint32_t vocabulary_of(const ModelMetadata& metadata);

}  // namespace distilld::kserve

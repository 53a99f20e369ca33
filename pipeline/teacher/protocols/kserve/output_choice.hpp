#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/teacher/protocols/kserve/message.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld::kserve {

/// A server's model configuration, outside of the protocol: Triton's `GET /v2/models/{model}/config`
/// (triton-inference-server/server docs/protocol/extension_model_configuration.md).
struct ModelConfig {
    std::uint64_t max_batch_size = 0;          ///< sequences per request; 0 = unknown or unlimited
    std::vector<std::string> required_inputs;  ///< names of the inputs that a request must have; empty = unknown
};

/// Fails if the text is not a JSON object.
[[nodiscard]] Result<ModelConfig> parse_model_config(std::string_view json);

/// The outputs to request.
struct OutputChoice {
    TeacherTargets::Kind kind = TeacherTargets::Kind::topk;
    std::string output;  ///< for logits or hidden states; empty: topk_ids, topk_logprobs and, if present, tail_logprob
    std::uint32_t width = 0;  ///< for hidden states
};

/// Top-k outputs if the model has them and they are wanted; else full logits (`logits`, or TensorRT-LLM's
/// `context_logits`), which are reduced here if top-k is wanted; or `hidden_states`, if they are wanted or, with
/// TargetsChoice::automatic, take fewer bytes than full logits. Hidden states are offered if the metadata's parameters
/// hold `hidden_size` and `head_sha256`. The error names the outputs, or the spec's field that conflicts with them.
[[nodiscard]] Result<OutputChoice> choose_output(const ModelMetadata& metadata, TargetsWanted wanted);

/// A positive number among the parameters; 0 if there is none.
[[nodiscard]] std::uint64_t positive_parameter(const Parameters& parameters, const std::string& name);

/// A text among the parameters; empty if there is none.
[[nodiscard]] std::string text_parameter(const Parameters& parameters, const std::string& name);

/// The SHA-256 of the head for the hidden states; empty if there is none.
[[nodiscard]] inline std::string head_sha256(const Parameters& parameters) {
    return text_parameter(parameters, "head_sha256");
}

/// Tokens in the model's vocabulary; 0 = not in the metadata.
[[nodiscard]] std::uint32_t vocabulary_of(const ModelMetadata& metadata);

}  // namespace distilld::kserve

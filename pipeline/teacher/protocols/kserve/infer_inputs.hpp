#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/teacher/protocols/kserve/message.hpp"
#include "pipeline/teacher/request_parts.hpp"

namespace distilld::kserve {

/// Whether we can fill the model's inputs: it has `input_ids`, those that we know have a fitting datatype and rank, and
/// we know all of `required`. The error names those that do not.
[[nodiscard]] Result<void> check_inputs(const ModelMetadata& metadata, const std::vector<std::string>& required);

/// The inputs that we do not know how to fill.
[[nodiscard]] std::vector<TensorSpec> inputs_left_out(const ModelMetadata& metadata);

/// The model's inputs for the sequences of a part, as far as we know how to fill them, in the order of the metadata.
/// `asked_k`: top-k rows are wanted. `binary`: as binary tensor data.
[[nodiscard]] Result<std::vector<InferTensor>> make_inputs(const ModelMetadata& metadata, const TokenBatch& tokens,
                                                           const RequestPart& part,
                                                           std::optional<std::uint32_t> asked_k, bool binary);

/// "a, b", or "none".
[[nodiscard]] std::string names_of(const std::vector<TensorSpec>& specs);

}  // namespace distilld::kserve

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

/// Checks that all needed inputs can be filled: `input_ids` exists, known ones have a valid datatype and rank, and all
/// of `required` are known. The error names the others.
[[nodiscard]] Result<void> check_inputs(const ModelMetadata& metadata, const std::vector<std::string>& required);

/// The inputs that are not sent because they are unknown.
[[nodiscard]] std::vector<TensorSpec> inputs_left_out(const ModelMetadata& metadata);

/// The known inputs for the sequences of a part, in the order of the metadata. `asked_k`: k, if top-k rows are wanted.
/// `binary`: as binary tensor data.
[[nodiscard]] Result<std::vector<InferTensor>> make_inputs(const ModelMetadata& metadata, const TokenBatch& tokens,
                                                           const RequestPart& part,
                                                           std::optional<std::uint32_t> asked_k, bool binary);

/// "a, b", or "none".
[[nodiscard]] std::string names_of(const std::vector<TensorSpec>& specs);

}  // namespace distilld::kserve

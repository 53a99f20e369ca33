#include "pipeline/teacher/protocols/kserve/infer_inputs.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "base/half_float.hpp"
#include "base/join.hpp"

namespace distilld::kserve {
namespace {

constexpr std::string_view kMask = "attention_mask";
constexpr std::string_view kPositions = "position_ids";

/// Supported inputs. The first two are our own teacher's, the next three TensorRT-LLM's; then come two of exported
/// transformers, and two names for k.
constexpr std::string_view kKnownInputs[] = {
    "input_ids", "seq_lens", "input_lengths", "request_output_len", "return_context_logits", kMask, kPositions,
    "top_k",     "k"};

bool is_known(std::string_view name) {
    return std::find(std::begin(kKnownInputs), std::end(kKnownInputs), name) != std::end(kKnownInputs);
}

bool is_integer(std::string_view datatype) {
    return datatype.find("INT") != std::string_view::npos;
}

/// Returns what is wrong with a supported input, if anything.
std::optional<std::string> input_defect(const TensorSpec& spec) {
    const auto needs = [&](const char* what) {
        return "input '" + spec.name + "' has datatype " + spec.datatype + ", " + what + " is needed";
    };
    if (spec.name == "return_context_logits") {
        return spec.datatype == "BOOL" ? std::nullopt : std::optional(needs("BOOL"));
    }
    const auto width = datatype_size(spec.datatype);
    if (spec.name == kMask ? !width : !is_integer(spec.datatype) || !width || *width < 4) {
        return needs(spec.name == kMask ? "a number" : "an integer of 32 or 64 bits");
    }
    const std::size_t rank = spec.shape.size();
    const bool ranked = spec.name == kMask ? rank == 2 : rank == 1 || rank == 2;
    if ((spec.name == kMask || spec.name == kPositions) && !ranked) {
        return "input '" + spec.name + "' has " + std::to_string(rank) +
               " dimensions, [sequences, positions] is needed";
    }
    return std::nullopt;
}

/// Shape of a value per sequence: [B] or [B, 1], as the metadata says.
std::vector<std::int64_t> per_sequence_shape(const TensorSpec& spec, std::uint32_t rows) {
    if (spec.shape.size() >= 2) {
        return {rows, 1};
    }
    return {rows};
}

/// A tensor of integers in the datatype that the model declares.
Result<InferTensor> integer_tensor(const TensorSpec& spec, std::vector<std::int64_t> shape,
                                   std::vector<std::int32_t> values, bool binary) {
    if (spec.datatype == "INT32" || spec.datatype == "UINT32") {
        return make_tensor(spec.name, spec.datatype, std::move(shape), std::move(values), binary);
    }
    if (spec.datatype == "INT64" || spec.datatype == "UINT64") {
        std::vector<std::int64_t> wide(values.begin(), values.end());
        return make_tensor(spec.name, spec.datatype, std::move(shape), std::move(wide), binary);
    }
    return teacher_error("input '" + spec.name + "' has datatype " + spec.datatype + ", an integer is needed");
}

/// A tensor of ones with `count` elements, in any datatype.
InferTensor ones(const TensorSpec& spec, std::vector<std::int64_t> shape, std::size_t count, bool binary) {
    const auto filled = [&](auto one) {
        return make_tensor(spec.name, spec.datatype, std::move(shape), std::vector<decltype(one)>(count, one), binary);
    };
    if (spec.datatype == "FP64") {
        return filled(1.0);
    }
    if (spec.datatype == "FP32") {
        return filled(1.0F);
    }
    if (spec.datatype == "FP16") {
        return filled(float_to_half(1.0F));
    }
    if (spec.datatype == "BF16") {
        return filled(float_to_bfloat16(1.0F));
    }
    switch (datatype_size(spec.datatype).value_or(1)) {
        case 8:
            return filled(std::int64_t{1});
        case 4:
            return filled(std::int32_t{1});
        case 2:
            return filled(std::int16_t{1});
        default:
            return filled(std::uint8_t{1});
    }
}

/// 0 to columns − 1, repeated per sequence if the model's shape has a batch dimension.
std::vector<std::int32_t> positions_of(const TensorSpec& spec, const RequestPart& part) {
    std::vector<std::int32_t> positions;
    for (std::uint32_t row = 0; row < (spec.shape.size() == 1 ? 1 : part.rows); ++row) {
        for (std::uint32_t column = 0; column < part.columns; ++column) {
            positions.push_back(static_cast<std::int32_t>(column));
        }
    }
    return positions;
}

/// One input of the model; empty if this request leaves it out.
Result<std::optional<InferTensor>> make_input(const TensorSpec& spec, const TokenBatch& tokens, const RequestPart& part,
                                              std::optional<std::uint32_t> asked_k, bool binary) {
    const auto integers = [&](std::vector<std::int64_t> shape,
                              std::vector<std::int32_t> values) -> Result<std::optional<InferTensor>> {
        auto tensor = integer_tensor(spec, std::move(shape), std::move(values), binary);
        if (!tensor) {
            return tensor.error();
        }
        return std::optional<InferTensor>(std::move(*tensor));
    };
    if (spec.name == "input_ids") {
        return integers({part.rows, part.columns}, input_ids_of(tokens, part));
    }
    if (spec.name == "seq_lens") {
        return integers(per_sequence_shape(spec, part.rows), lengths_of(tokens, part));
    }
    if (spec.name == "input_lengths") {
        // The padded length, so that the answer keeps the shape [B, T, V]. Padding is on the right, so it cannot change
        // an earlier row.
        return integers(per_sequence_shape(spec, part.rows),
                        std::vector<std::int32_t>(part.rows, static_cast<std::int32_t>(part.columns)));
    }
    if (spec.name == "request_output_len") {
        return integers(per_sequence_shape(spec, part.rows), std::vector<std::int32_t>(part.rows, 1));
    }
    if (spec.name == "return_context_logits") {
        return std::optional<InferTensor>(make_tensor(spec.name, "BOOL", per_sequence_shape(spec, part.rows),
                                                      std::vector<std::uint8_t>(part.rows, 1), binary));
    }
    if (spec.name == kMask) {
        // Padding is not masked: it is on the right, where no row with a loss attends to it.
        return std::optional<InferTensor>(
            ones(spec, {part.rows, part.columns}, std::size_t{part.rows} * part.columns, binary));
    }
    if (spec.name == kPositions) {
        std::vector<std::int64_t> shape{part.columns};
        if (spec.shape.size() == 2) {
            shape.insert(shape.begin(), part.rows);
        }
        return integers(std::move(shape), positions_of(spec, part));
    }
    if (asked_k && (spec.name == "top_k" || spec.name == "k")) {
        return integers({1}, {static_cast<std::int32_t>(*asked_k)});
    }
    return std::optional<InferTensor>();
}

}  // namespace

std::string names_of(const std::vector<TensorSpec>& specs) {
    return specs.empty() ? "none" : joined(specs, ", ", &TensorSpec::name);
}

std::vector<TensorSpec> inputs_left_out(const ModelMetadata& metadata) {
    std::vector<TensorSpec> unknown;
    std::copy_if(metadata.inputs.begin(), metadata.inputs.end(), std::back_inserter(unknown),
                 [](const TensorSpec& spec) { return !is_known(spec.name); });
    return unknown;
}

Result<void> check_inputs(const ModelMetadata& metadata, const std::vector<std::string>& required) {
    if (metadata.find_input("input_ids") == nullptr) {
        return teacher_error("the model has no input 'input_ids' (its inputs: " + names_of(metadata.inputs) + ")");
    }
    for (const TensorSpec& spec : metadata.inputs) {
        // Metadata does not say which inputs are optional (TensorRT-LLM has dozens), so unknown inputs are left out.
        if (const auto defect = is_known(spec.name) ? input_defect(spec) : std::nullopt) {
            return teacher_error(*defect);
        }
    }
    std::vector<std::string> missing;
    std::ranges::copy_if(required, std::back_inserter(missing), std::not_fn(is_known));
    if (!missing.empty()) {
        return teacher_error("the model requires inputs that distilld cannot supply: " + joined(missing));
    }
    return {};
}

Result<std::vector<InferTensor>> make_inputs(const ModelMetadata& metadata, const TokenBatch& tokens,
                                             const RequestPart& part, std::optional<std::uint32_t> asked_k,
                                             bool binary) {
    std::vector<InferTensor> inputs;
    for (const TensorSpec& spec : metadata.inputs) {
        auto tensor = make_input(spec, tokens, part, asked_k, binary);
        if (!tensor) {
            return tensor.error();
        }
        if (*tensor) {
            inputs.push_back(std::move(**tensor));
        }
    }
    return inputs;
}

}  // namespace distilld::kserve

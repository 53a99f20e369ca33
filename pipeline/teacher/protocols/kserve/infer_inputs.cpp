#include "pipeline/teacher/protocols/kserve/infer_inputs.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace distilld::kserve {
namespace {

/// Inputs that we know how to fill. The first two are our own teacher's, the next three TensorRT-LLM's, the last two
/// are how some models take k.
constexpr std::string_view kKnownInputs[] = {
    "input_ids", "seq_lens", "input_lengths", "request_output_len", "return_context_logits", "top_k", "k"};

/// How the batch's rank-1 values are shaped: metadata says [B] or [B, 1].
std::vector<std::int64_t> per_sequence_shape(const TensorSpec& spec, std::uint32_t rows) {
    if (spec.shape.size() >= 2) {
        return {rows, 1};
    }
    return {rows};
}

/// Integers in the datatype that the model declares.
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

/// One input of the model; nothing when this form of request leaves it out.
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
        // The padded length: padding stands on the right, so it cannot change an earlier row, and the answer keeps the
        // shape [B, T, V].
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
    if (asked_k && (spec.name == "top_k" || spec.name == "k")) {
        return integers({1}, {static_cast<std::int32_t>(*asked_k)});
    }
    return std::optional<InferTensor>();
}

}  // namespace

std::string names_of(const std::vector<TensorSpec>& specs) {
    std::string names;
    for (const TensorSpec& spec : specs) {
        names += (names.empty() ? "" : ", ") + spec.name;
    }
    return names.empty() ? "none" : names;
}

Result<void> check_inputs(const ModelMetadata& metadata) {
    if (metadata.find_input("input_ids") == nullptr) {
        return teacher_error("the model has no input 'input_ids' (its inputs: " + names_of(metadata.inputs) + ")");
    }
    for (const TensorSpec& spec : metadata.inputs) {
        if (std::find(std::begin(kKnownInputs), std::end(kKnownInputs), spec.name) == std::end(kKnownInputs)) {
            // Triton's metadata does not say which inputs are optional (TensorRT-LLM has dozens): left out.
            continue;
        }
        const bool flag = spec.name == "return_context_logits";
        const bool fits = flag ? spec.datatype == "BOOL" : spec.datatype.find("INT") != std::string::npos;
        if (!fits) {
            return teacher_error("input '" + spec.name + "' has datatype " + spec.datatype + ", " +
                                 (flag ? "BOOL" : "an integer") + " is needed");
        }
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

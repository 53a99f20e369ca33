#include "pipeline/teacher/protocols/kserve/message.hpp"

#include <algorithm>
#include <limits>

namespace distilld::kserve {

std::optional<std::size_t> datatype_size(std::string_view datatype) noexcept {
    if (datatype == "BOOL" || datatype == "INT8" || datatype == "UINT8") {
        return 1;
    }
    if (datatype == "FP16" || datatype == "BF16" || datatype == "INT16" || datatype == "UINT16") {
        return 2;
    }
    if (datatype == "FP32" || datatype == "INT32" || datatype == "UINT32") {
        return 4;
    }
    if (datatype == "FP64" || datatype == "INT64" || datatype == "UINT64") {
        return 8;
    }
    return std::nullopt;
}

std::optional<std::uint64_t> element_count(std::span<const std::int64_t> shape) noexcept {
    std::uint64_t count = 1;
    bool zero = false;
    for (const std::int64_t dimension : shape) {
        if (dimension < 0) {
            return std::nullopt;
        }
        if (dimension == 0) {
            zero = true;
            continue;
        }
        const auto size = static_cast<std::uint64_t>(dimension);
        if (count > std::numeric_limits<std::uint64_t>::max() / size) {
            return std::nullopt;
        }
        count *= size;
    }
    return zero ? 0 : count;
}

bool InferRequest::wants_binary(std::string_view output) const {
    for (const RequestedOutput& requested : outputs) {
        if (requested.name == output && requested.binary) {
            return *requested.binary;
        }
    }
    return binary_data_output.value_or(false);
}

const InferTensor* InferResponse::find(std::string_view output) const noexcept {
    const auto found = std::find_if(outputs.begin(), outputs.end(), [&](const auto& t) { return t.name == output; });
    return found == outputs.end() ? nullptr : &*found;
}

namespace {

const TensorSpec* find_spec(const std::vector<TensorSpec>& specs, std::string_view name) noexcept {
    const auto found = std::find_if(specs.begin(), specs.end(), [&](const auto& spec) { return spec.name == name; });
    return found == specs.end() ? nullptr : &*found;
}

}  // namespace

const TensorSpec* ModelMetadata::find_input(std::string_view input) const noexcept {
    return find_spec(inputs, input);
}

const TensorSpec* ModelMetadata::find_output(std::string_view output) const noexcept {
    return find_spec(outputs, output);
}

}  // namespace distilld::kserve

#include <algorithm>
#include <array>
#include <bit>
#include <boost/json/value.hpp>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/half_float.hpp"
#include "base/json_text.hpp"
#include "pipeline/teacher/protocols/kserve/message.hpp"

static_assert(std::endian::native == std::endian::little, "tensors are sent in the machine's byte order");

namespace distilld::kserve {
namespace {

/// Appends JSON text. Not Boost.JSON, because a data array may hold millions of numbers.
class JsonWriter {
  public:
    explicit JsonWriter(std::string& out) : out_(out) {}

    void raw(std::string_view text) { out_.append(text); }
    void string(std::string_view text) { out_.append(to_text(boost::json::value(text))); }

    template <class Number>
    void number(Number value) {
        std::array<char, 40> digits;
        const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value);
        out_.append(digits.data(), end.ptr);
    }

    void key(std::string_view name) {
        string(name);
        out_.push_back(':');
    }

    void shape(std::span<const std::int64_t> dimensions) {
        out_.push_back('[');
        for (std::size_t i = 0; i < dimensions.size(); ++i) {
            if (i > 0) {
                out_.push_back(',');
            }
            number(dimensions[i]);
        }
        out_.push_back(']');
    }

  private:
    std::string& out_;
};

template <class T>
T element(const std::byte* bytes, std::size_t index) {
    T value;
    std::memcpy(&value, bytes + index * sizeof(T), sizeof(T));
    return value;
}

template <class T, class Write>
void write_elements(JsonWriter& json, std::span<const std::byte> bytes, Write write) {
    json.raw("[");
    const std::size_t count = bytes.size() / sizeof(T);
    for (std::size_t i = 0; i < count; ++i) {
        if (i > 0) {
            json.raw(",");
        }
        write(element<T>(bytes.data(), i));
    }
    json.raw("]");
}

/// False if there is a NaN.
bool write_data(JsonWriter& json, const InferTensor& tensor) {
    bool finite = true;
    const auto real = [&](auto value, auto max) {
        if (std::isnan(value)) {
            finite = false;
            value = 0;
        }
        json.number(std::clamp(value, -max, max));
    };
    const auto integer = [&](auto value) { json.number(value); };
    const std::string_view type = tensor.datatype;
    if (type == "BOOL") {
        write_elements<std::uint8_t>(json, tensor.bytes,
                                     [&](std::uint8_t value) { json.raw(value != 0 ? "true" : "false"); });
    } else if (type == "FP16") {
        write_elements<std::uint16_t>(json, tensor.bytes,
                                      [&](std::uint16_t bits) { real(half_to_float(bits), 65504.0F); });
    } else if (type == "BF16") {
        write_elements<std::uint16_t>(
            json, tensor.bytes, [&](std::uint16_t bits) { real(bfloat16_to_float(bits), bfloat16_to_float(0x7F7FU)); });
    } else if (type == "FP32") {
        write_elements<float>(json, tensor.bytes, [&](float value) { real(value, std::numeric_limits<float>::max()); });
    } else if (type == "FP64") {
        write_elements<double>(json, tensor.bytes,
                               [&](double value) { real(value, std::numeric_limits<double>::max()); });
    } else if (type == "INT8") {
        write_elements<std::int8_t>(json, tensor.bytes, [&](std::int8_t value) { integer(int{value}); });
    } else if (type == "UINT8") {
        write_elements<std::uint8_t>(json, tensor.bytes, [&](std::uint8_t value) { integer(int{value}); });
    } else if (type == "INT16") {
        write_elements<std::int16_t>(json, tensor.bytes, integer);
    } else if (type == "UINT16") {
        write_elements<std::uint16_t>(json, tensor.bytes, integer);
    } else if (type == "INT32") {
        write_elements<std::int32_t>(json, tensor.bytes, integer);
    } else if (type == "UINT32") {
        write_elements<std::uint32_t>(json, tensor.bytes, integer);
    } else if (type == "INT64") {
        write_elements<std::int64_t>(json, tensor.bytes, integer);
    } else {
        write_elements<std::uint64_t>(json, tensor.bytes, integer);
    }
    return finite;
}

void write_parameter(JsonWriter& json, const Parameter& parameter) {
    if (const auto* flag = std::get_if<bool>(&parameter)) {
        json.raw(*flag ? "true" : "false");
    } else if (const auto* integer = std::get_if<std::int64_t>(&parameter)) {
        json.number(*integer);
    } else if (const auto* real = std::get_if<double>(&parameter)) {
        const double max = std::numeric_limits<double>::max();
        json.number(std::isnan(*real) ? 0.0 : std::clamp(*real, -max, max));
    } else {
        json.string(std::get<std::string>(parameter));
    }
}

void write_parameters(JsonWriter& json, const Parameters& parameters, std::optional<bool> binary_data_output) {
    json.raw("{");
    const char* separator = "";
    for (const auto& [name, value] : parameters) {
        json.raw(separator);
        json.key(name);
        write_parameter(json, value);
        separator = ",";
    }
    if (binary_data_output) {
        json.raw(separator);
        json.raw(*binary_data_output ? R"("binary_data_output":true)" : R"("binary_data_output":false)");
    }
    json.raw("}");
}

Result<void> check_tensor(const InferTensor& tensor) {
    const auto width = datatype_size(tensor.datatype);
    if (!width) {
        return invalid_input("tensor '" + tensor.name + "': datatype '" + tensor.datatype + "' is not supported");
    }
    const auto count = element_count(tensor.shape);
    if (!count || *count > std::numeric_limits<std::size_t>::max() / *width || *count * *width != tensor.bytes.size()) {
        return invalid_input("tensor '" + tensor.name + "': " + std::to_string(tensor.bytes.size()) +
                             " bytes do not fit its shape");
    }
    return {};
}

Result<void> write_tensors(JsonWriter& json, const std::vector<InferTensor>& tensors) {
    json.raw("[");
    const char* separator = "";
    for (const InferTensor& tensor : tensors) {
        if (auto checked = check_tensor(tensor); !checked) {
            return checked.error();
        }
        json.raw(separator);
        separator = ",";
        json.raw("{");
        json.key("name");
        json.string(tensor.name);
        json.raw(",");
        json.key("datatype");
        json.string(tensor.datatype);
        json.raw(",");
        json.key("shape");
        json.shape(tensor.shape);
        if (tensor.binary) {
            json.raw(R"(,"parameters":{"binary_data_size":)");
            json.number(tensor.bytes.size());
            json.raw("}");
        } else {
            json.raw(R"(,"data":)");
            if (!write_data(json, tensor)) {
                return invalid_input("tensor '" + tensor.name + "' holds a NaN, which JSON cannot express");
            }
        }
        json.raw("}");
    }
    json.raw("]");
    return {};
}

/// Appends the binary part to the JSON in `message.body`.
void append_binary(EncodedMessage& message, const std::vector<InferTensor>& tensors) {
    std::size_t bytes = 0;
    bool any = false;
    for (const InferTensor& tensor : tensors) {
        any = any || tensor.binary;
        bytes += tensor.binary ? tensor.bytes.size() : 0;
    }
    if (!any) {
        return;
    }
    message.json_header_length = message.body.size();
    message.body.reserve(message.body.size() + bytes);
    for (const InferTensor& tensor : tensors) {
        if (tensor.binary && !tensor.bytes.empty()) {
            message.body.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
        }
    }
}

void write_specs(JsonWriter& json, const std::vector<TensorSpec>& specs) {
    json.raw("[");
    const char* separator = "";
    for (const TensorSpec& spec : specs) {
        json.raw(separator);
        separator = ",";
        json.raw(R"({"name":)");
        json.string(spec.name);
        json.raw(R"(,"datatype":)");
        json.string(spec.datatype);
        json.raw(R"(,"shape":)");
        json.shape(spec.shape);
        json.raw("}");
    }
    json.raw("]");
}

}  // namespace

Result<EncodedMessage> build_infer_request(const InferRequest& request) {
    EncodedMessage message;
    JsonWriter json(message.body);
    json.raw("{");
    if (!request.id.empty()) {
        json.key("id");
        json.string(request.id);
        json.raw(",");
    }
    if (!request.parameters.empty() || request.binary_data_output) {
        json.key("parameters");
        write_parameters(json, request.parameters, request.binary_data_output);
        json.raw(",");
    }
    json.key("inputs");
    if (auto written = write_tensors(json, request.inputs); !written) {
        return written.error();
    }
    if (!request.outputs.empty()) {
        json.raw(R"(,"outputs":[)");
        const char* separator = "";
        for (const RequestedOutput& output : request.outputs) {
            json.raw(separator);
            separator = ",";
            json.raw(R"({"name":)");
            json.string(output.name);
            if (output.binary) {
                json.raw(*output.binary ? R"(,"parameters":{"binary_data":true})"
                                        : R"(,"parameters":{"binary_data":false})");
            }
            json.raw("}");
        }
        json.raw("]");
    }
    json.raw("}");
    append_binary(message, request.inputs);
    return message;
}

Result<EncodedMessage> build_infer_response(const InferResponse& response) {
    EncodedMessage message;
    JsonWriter json(message.body);
    json.raw("{");
    if (!response.id.empty()) {
        json.key("id");
        json.string(response.id);
        json.raw(",");
    }
    json.key("model_name");
    json.string(response.model_name);
    if (!response.model_version.empty()) {
        json.raw(",");
        json.key("model_version");
        json.string(response.model_version);
    }
    if (!response.parameters.empty()) {
        json.raw(",");
        json.key("parameters");
        write_parameters(json, response.parameters, std::nullopt);
    }
    json.raw(",");
    json.key("outputs");
    if (auto written = write_tensors(json, response.outputs); !written) {
        return written.error();
    }
    json.raw("}");
    append_binary(message, response.outputs);
    return message;
}

std::string build_model_metadata(const ModelMetadata& metadata) {
    std::string out;
    JsonWriter json(out);
    json.raw(R"({"name":)");
    json.string(metadata.name);
    json.raw(R"(,"versions":[)");
    const char* separator = "";
    for (const std::string& version : metadata.versions) {
        json.raw(separator);
        separator = ",";
        json.string(version);
    }
    json.raw(R"(],"platform":)");
    json.string(metadata.platform);
    json.raw(R"(,"inputs":)");
    write_specs(json, metadata.inputs);
    json.raw(R"(,"outputs":)");
    write_specs(json, metadata.outputs);
    if (!metadata.parameters.empty()) {
        json.raw(R"(,"parameters":)");
        write_parameters(json, metadata.parameters, std::nullopt);
    }
    json.raw("}");
    return out;
}

}  // namespace distilld::kserve

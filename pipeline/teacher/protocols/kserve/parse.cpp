#include <simdjson.h>

#include <algorithm>
#include <limits>

#include "base/half_float.hpp"
#include "pipeline/teacher/protocols/kserve/message.hpp"

namespace distilld::kserve {
namespace {

namespace od = simdjson::ondemand;

[[noreturn]] void fail(std::string message) {
    throw ErrorException(invalid_input(std::move(message)));
}

std::string tensor_label(std::string_view name) {
    return "tensor '" + std::string(name) + "'";
}

/// The field, unless it is absent or null.
std::optional<od::value> optional_field(od::object& object, std::string_view name) {
    auto found = object.find_field_unordered(name);
    if (found.error() == simdjson::NO_SUCH_FIELD) {
        return std::nullopt;
    }
    od::value value = found.value();
    if (value.is_null()) {
        return std::nullopt;
    }
    return value;
}

std::string string_field(od::object& object, std::string_view name, std::string_view where, bool required) {
    auto field = optional_field(object, name);
    if (!field) {
        if (required) {
            fail(std::string(where) + " has no '" + std::string(name) + "'");
        }
        return {};
    }
    std::string_view text;
    if (field->get_string().get(text) != simdjson::SUCCESS) {
        fail(std::string(where) + ": '" + std::string(name) + "' is not a string");
    }
    return std::string(text);
}

std::optional<Parameter> parameter_of(od::value value) {
    switch (value.type().value()) {
        case od::json_type::boolean:
            return Parameter(value.get_bool().value());
        case od::json_type::string:
            return Parameter(std::string(value.get_string().value()));
        case od::json_type::number: {
            const od::number number = value.get_number().value();
            if (number.is_int64()) {
                return Parameter(number.get_int64());
            }
            return Parameter(number.as_double());
        }
        default:
            return std::nullopt;  // null, or a structure that some extension of a server adds: not ours to read
    }
}

Parameters parameters_of(od::object& object, std::string_view where) {
    Parameters parameters;
    auto field = optional_field(object, "parameters");
    if (!field) {
        return parameters;
    }
    od::object fields;
    if (field->get_object().get(fields) != simdjson::SUCCESS) {
        fail(std::string(where) + ": 'parameters' is not an object");
    }
    for (auto entry : fields) {
        const std::string key(std::string_view(entry.unescaped_key()));
        if (auto parameter = parameter_of(entry.value())) {
            parameters.insert_or_assign(key, std::move(*parameter));
        }
    }
    return parameters;
}

std::optional<bool> take_flag(Parameters& parameters, const std::string& name, std::string_view where) {
    const auto found = parameters.find(name);
    if (found == parameters.end()) {
        return std::nullopt;
    }
    const auto* flag = std::get_if<bool>(&found->second);
    if (flag == nullptr) {
        fail(std::string(where) + ": parameter '" + name + "' is not true or false");
    }
    const bool value = *flag;
    parameters.erase(found);
    return value;
}

std::vector<std::int64_t> shape_of(od::object& object, const std::string& where, std::size_t max_rank, bool wildcards) {
    auto field = optional_field(object, "shape");
    od::array dimensions;
    if (!field || field->get_array().get(dimensions) != simdjson::SUCCESS) {
        fail(where + " has no 'shape' array");
    }
    std::vector<std::int64_t> shape;
    for (auto dimension : dimensions) {
        std::int64_t size = 0;
        if (dimension.get_int64().get(size) != simdjson::SUCCESS || size < (wildcards ? -1 : 0)) {
            fail(where + ": 'shape' holds something that is not a size");
        }
        if (shape.size() == max_rank) {
            fail(where + " has more than " + std::to_string(max_rank) + " dimensions");
        }
        shape.push_back(size);
    }
    return shape;
}

/// Puts the numbers of a `data` array into storage of the tensor's datatype.
class DataReader {
  public:
    DataReader(const InferTensor& tensor, std::uint64_t count, std::size_t width, std::byte* out)
        : tensor_(tensor), count_(count), width_(width), out_(out) {}

    void read(od::array array) {
        const bool nested = level(array, 0);
        (void)nested;
        if (filled_ != count_) {
            fail(tensor_label(tensor_.name) + ": 'data' holds " + std::to_string(filled_) +
                 " values, the shape needs " + std::to_string(count_));
        }
    }

  private:
    /// True when the array holds arrays.
    bool level(od::array array, std::size_t depth) {
        std::uint64_t items = 0;
        bool arrays = false;
        bool scalars = false;
        for (auto item : array) {
            od::value value = item.value();
            ++items;
            if (value.type().value() == od::json_type::array) {
                arrays = true;
                if (depth + 1 >= tensor_.shape.size()) {
                    fail(tensor_label(tensor_.name) + ": 'data' is nested deeper than its shape");
                }
                level(value.get_array().value(), depth + 1);
            } else {
                scalars = true;
                put(value);
            }
        }
        if (arrays && scalars) {
            fail(tensor_label(tensor_.name) + ": 'data' mixes numbers and arrays");
        }
        // A flat list is allowed at the top only; anything else has the very form of the shape.
        const bool flat = depth == 0 && !arrays;
        if (!flat) {
            const bool innermost = depth + 1 == tensor_.shape.size();
            if ((scalars && !innermost) || items != static_cast<std::uint64_t>(tensor_.shape[depth])) {
                fail(tensor_label(tensor_.name) + ": 'data' does not have the form of its shape");
            }
        }
        return arrays;
    }

    void put(od::value& value) {
        if (filled_ == count_) {
            fail(tensor_label(tensor_.name) + ": 'data' holds more values than the shape needs (" +
                 std::to_string(count_) + ")");
        }
        std::byte* out = out_ + filled_ * width_;
        ++filled_;
        const std::string_view type = tensor_.datatype;
        if (type == "FP32") {
            store(out, static_cast<float>(real(value)));
        } else if (type == "FP64") {
            store(out, real(value));
        } else if (type == "FP16") {
            store(out, float_to_half(static_cast<float>(real(value))));
        } else if (type == "BF16") {
            store(out, float_to_bfloat16(static_cast<float>(real(value))));
        } else if (type == "BOOL") {
            bool flag = false;
            if (value.get_bool().get(flag) != simdjson::SUCCESS) {
                const auto number = integer<std::int64_t>(value, 0, 1);
                flag = number == 1;
            }
            store(out, static_cast<std::uint8_t>(flag ? 1 : 0));
        } else if (type == "UINT64") {
            std::uint64_t number = 0;
            if (value.get_uint64().get(number) != simdjson::SUCCESS) {
                wrong_value();
            }
            store(out, number);
        } else {
            store_integer(type, value, out);
        }
    }

    void store_integer(std::string_view type, od::value& value, std::byte* out) {
        if (type == "INT32") {
            store(out, static_cast<std::int32_t>(ranged<std::int32_t>(value)));
        } else if (type == "INT64") {
            store(out, ranged<std::int64_t>(value));
        } else if (type == "UINT32") {
            store(out, static_cast<std::uint32_t>(ranged<std::uint32_t>(value)));
        } else if (type == "INT16") {
            store(out, static_cast<std::int16_t>(ranged<std::int16_t>(value)));
        } else if (type == "UINT16") {
            store(out, static_cast<std::uint16_t>(ranged<std::uint16_t>(value)));
        } else if (type == "INT8") {
            store(out, static_cast<std::int8_t>(ranged<std::int8_t>(value)));
        } else {
            store(out, static_cast<std::uint8_t>(ranged<std::uint8_t>(value)));
        }
    }

    template <class T>
    std::int64_t ranged(od::value& value) {
        return integer<std::int64_t>(value, static_cast<std::int64_t>(std::numeric_limits<T>::min()),
                                     static_cast<std::int64_t>(std::numeric_limits<T>::max()));
    }

    template <class T>
    T integer(od::value& value, T least, T most) {
        std::int64_t number = 0;
        if (value.get_int64().get(number) != simdjson::SUCCESS || number < least || number > most) {
            wrong_value();
        }
        return number;
    }

    double real(od::value& value) {
        double number = 0;
        if (value.get_double().get(number) != simdjson::SUCCESS) {
            wrong_value();
        }
        return number;
    }

    [[noreturn]] void wrong_value() const {
        fail(tensor_label(tensor_.name) + ": value " + std::to_string(filled_ - 1) + " is not a " + tensor_.datatype);
    }

    template <class T>
    static void store(std::byte* out, T value) {
        std::memcpy(out, &value, sizeof(T));
    }

    const InferTensor& tensor_;
    std::uint64_t count_;
    std::size_t width_;
    std::byte* out_;
    std::uint64_t filled_ = 0;
};

/// Body, its split into JSON and binary part, and how much of the binary part is taken.
struct BodyReader {
    std::span<const std::byte> binary;
    std::size_t taken = 0;
    bool has_binary = false;
    std::shared_ptr<const void> owner;
    const MessageLimits& limits;
    std::uint64_t tensor_bytes = 0;

    InferTensor tensor(od::object object, std::string_view role) {
        InferTensor result;
        result.name = string_field(object, "name", role, true);
        const std::string where = tensor_label(result.name);
        result.datatype = string_field(object, "datatype", where, true);
        result.shape = shape_of(object, where, limits.max_rank, false);
        const auto width = datatype_size(result.datatype);
        if (!width) {
            fail(where + ": datatype '" + result.datatype + "' is not supported");
        }
        const auto count = element_count(result.shape);
        if (!count || *count > limits.max_tensor_bytes / *width ||
            *count * *width > limits.max_tensor_bytes - tensor_bytes) {
            fail(where + " is larger than the limit of " + std::to_string(limits.max_tensor_bytes) + " bytes");
        }
        const std::uint64_t bytes = *count * *width;
        const Parameters parameters = parameters_of(object, where);
        const auto size = parameters.find("binary_data_size");
        auto data = optional_field(object, "data");
        if (size != parameters.end()) {
            if (data) {
                fail(where + " has both 'data' and 'binary_data_size'");
            }
            const auto* stated = std::get_if<std::int64_t>(&size->second);
            if (stated == nullptr || *stated < 0 || static_cast<std::uint64_t>(*stated) != bytes) {
                fail(where + ": 'binary_data_size' is not the " + std::to_string(bytes) + " bytes of its shape");
            }
            if (!has_binary) {
                fail(where + " is announced as binary data, but there is no " + std::string(kHeaderLengthField) +
                     " header");
            }
            if (bytes > binary.size() - taken) {
                fail(where + " needs " + std::to_string(bytes) + " bytes of binary data, " +
                     std::to_string(binary.size() - taken) + " are left");
            }
            result.bytes = binary.subspan(taken, static_cast<std::size_t>(bytes));
            result.owner = owner;
            result.binary = true;
            taken += static_cast<std::size_t>(bytes);
        } else if (data) {
            od::array array;
            if (data->get_array().get(array) != simdjson::SUCCESS) {
                fail(where + ": 'data' is not an array");
            }
            // A JSON number and its comma take two bytes at least, so the text bounds the memory.
            if (*count > json_bytes / 2 + 1) {
                fail(where + ": 'data' cannot hold the " + std::to_string(*count) + " values of its shape");
            }
            auto storage = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(bytes));
            DataReader(result, *count, *width, storage->data()).read(array);
            result.bytes = *storage;
            result.owner = std::move(storage);
            result.binary = false;
        } else {
            fail(where + " has neither 'data' nor 'binary_data_size'");
        }
        tensor_bytes += bytes;
        return result;
    }

    std::vector<InferTensor> tensors(od::object& object, std::string_view field, std::string_view role) {
        auto value = optional_field(object, field);
        od::array array;
        if (!value || value->get_array().get(array) != simdjson::SUCCESS) {
            fail("there is no '" + std::string(field) + "' array");
        }
        std::vector<InferTensor> result;
        for (auto item : array) {
            if (result.size() == limits.max_tensors) {
                fail("there are more than " + std::to_string(limits.max_tensors) + " " + std::string(field));
            }
            od::object entry;
            if (item.get_object().get(entry) != simdjson::SUCCESS) {
                fail("'" + std::string(field) + "' holds something that is not an object");
            }
            result.push_back(tensor(entry, role));
        }
        return result;
    }

    void check_all_taken() const {
        if (taken != binary.size()) {
            fail(std::to_string(binary.size() - taken) + " bytes of binary data belong to no tensor");
        }
    }

    std::size_t json_bytes = 0;
};

/// Runs `read(object, reader)` over the body; failures become an Error of `kind`.
template <class T, class Read>
Result<T> parse(std::span<const std::byte> body, std::optional<std::size_t> header_length, const MessageLimits& limits,
                std::shared_ptr<const void> owner, std::size_t padding, ErrorKind kind, Read read) {
    try {
        if (header_length && *header_length > body.size()) {
            fail(std::string(kHeaderLengthField) + " is " + std::to_string(*header_length) + ", the body has " +
                 std::to_string(body.size()) + " bytes");
        }
        const std::size_t json_length = header_length.value_or(body.size());
        if (json_length > limits.max_json_bytes) {
            fail("the JSON part has " + std::to_string(json_length) + " bytes, more than the limit of " +
                 std::to_string(limits.max_json_bytes));
        }
        const auto* text = reinterpret_cast<const char*>(body.data());
        simdjson::padded_string copy;
        simdjson::padded_string_view json;
        if (body.size() - json_length + padding >= simdjson::SIMDJSON_PADDING) {
            json = simdjson::padded_string_view(text, json_length, body.size() + padding);
        } else {
            copy = simdjson::padded_string(text, json_length);
            json = copy;
        }
        od::parser parser;
        od::document document = parser.iterate(json);
        od::object object;
        if (document.get_object().get(object) != simdjson::SUCCESS) {
            fail("the body is not a JSON object");
        }
        BodyReader reader{
            body.subspan(json_length), 0, header_length.has_value(), std::move(owner), limits, 0, json_length};
        T result = read(object, reader);
        reader.check_all_taken();
        return result;
    } catch (const ErrorException& error) {
        return Error{kind, error.error().message};
    } catch (const simdjson::simdjson_error& error) {
        return Error{kind, std::string("the JSON part cannot be parsed: ") + error.what()};
    }
}

std::vector<TensorSpec> specs_of(od::object& object, std::string_view field) {
    std::vector<TensorSpec> specs;
    auto value = optional_field(object, field);
    od::array array;
    if (!value || value->get_array().get(array) != simdjson::SUCCESS) {
        fail("model metadata has no '" + std::string(field) + "' array");
    }
    for (auto item : array) {
        od::object entry = item.get_object();
        TensorSpec spec;
        spec.name = string_field(entry, "name", "a tensor of the model metadata", true);
        spec.datatype = string_field(entry, "datatype", tensor_label(spec.name), true);
        spec.shape = shape_of(entry, tensor_label(spec.name), 16, true);
        specs.push_back(std::move(spec));
    }
    return specs;
}

}  // namespace

Result<InferRequest> parse_infer_request(std::span<const std::byte> body, std::optional<std::size_t> header_length,
                                         const MessageLimits& limits, std::shared_ptr<const void> owner,
                                         std::size_t padding) {
    const auto read = [&](od::object& object, BodyReader& reader) {
        InferRequest request;
        request.id = string_field(object, "id", "the request", false);
        request.parameters = parameters_of(object, "the request");
        request.binary_data_output = take_flag(request.parameters, "binary_data_output", "the request");
        request.inputs = reader.tensors(object, "inputs", "an input");
        if (auto outputs = optional_field(object, "outputs")) {
            od::array array;
            if (outputs->get_array().get(array) != simdjson::SUCCESS) {
                fail("'outputs' is not an array");
            }
            for (auto item : array) {
                if (request.outputs.size() == limits.max_tensors) {
                    fail("there are more than " + std::to_string(limits.max_tensors) + " outputs");
                }
                od::object entry;
                if (item.get_object().get(entry) != simdjson::SUCCESS) {
                    fail("'outputs' holds something that is not an object");
                }
                RequestedOutput output;
                output.name = string_field(entry, "name", "an output", true);
                const std::string where = "output '" + output.name + "'";
                Parameters parameters = parameters_of(entry, where);
                output.binary = take_flag(parameters, "binary_data", where);
                request.outputs.push_back(std::move(output));
            }
        }
        return request;
    };
    return parse<InferRequest>(body, header_length, limits, std::move(owner), padding, ErrorKind::invalid_input, read);
}

Result<InferResponse> parse_infer_response(std::span<const std::byte> body, std::optional<std::size_t> header_length,
                                           const MessageLimits& limits, std::shared_ptr<const void> owner,
                                           std::size_t padding) {
    const auto read = [&](od::object& object, BodyReader& reader) {
        InferResponse response;
        response.model_name = string_field(object, "model_name", "the response", false);
        response.model_version = string_field(object, "model_version", "the response", false);
        response.id = string_field(object, "id", "the response", false);
        response.parameters = parameters_of(object, "the response");
        response.outputs = reader.tensors(object, "outputs", "an output");
        return response;
    };
    return parse<InferResponse>(body, header_length, limits, std::move(owner), padding, ErrorKind::teacher, read);
}

Result<InferRequest> parse_infer_request(std::shared_ptr<const std::string> body,
                                         std::optional<std::size_t> header_length, const MessageLimits& limits) {
    const auto bytes = std::as_bytes(std::span(*body));
    return parse_infer_request(bytes, header_length, limits, std::move(body));
}

Result<InferResponse> parse_infer_response(std::shared_ptr<const std::string> body,
                                           std::optional<std::size_t> header_length, const MessageLimits& limits) {
    const auto bytes = std::as_bytes(std::span(*body));
    return parse_infer_response(bytes, header_length, limits, std::move(body));
}

Result<ModelMetadata> parse_model_metadata(std::string_view json) {
    const MessageLimits limits{.max_json_bytes = 1U << 20U};
    const auto read = [](od::object& object, BodyReader&) {
        ModelMetadata metadata;
        metadata.name = string_field(object, "name", "model metadata", true);
        metadata.platform = string_field(object, "platform", "model metadata", false);
        if (auto versions = optional_field(object, "versions")) {
            for (auto version : versions->get_array()) {
                metadata.versions.emplace_back(std::string_view(version));
            }
        }
        metadata.inputs = specs_of(object, "inputs");
        metadata.outputs = specs_of(object, "outputs");
        return metadata;
    };
    return parse<ModelMetadata>(std::as_bytes(std::span(json)), std::nullopt, limits, nullptr, 0, ErrorKind::teacher,
                                read);
}

}  // namespace distilld::kserve

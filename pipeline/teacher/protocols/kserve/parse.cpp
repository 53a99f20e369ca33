#include "pipeline/teacher/protocols/json_answer.hpp"
#include "pipeline/teacher/protocols/kserve/body_reader.hpp"

namespace distilld::kserve {
namespace {

namespace od = simdjson::ondemand;

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

/// Runs `read(object, reader)` over the body; failures become an Error of `kind`.
template <class T, class Read>
Result<T> parse(std::span<const std::byte> body, std::optional<std::size_t> header_length, const MessageLimits& limits,
                std::shared_ptr<const void> owner, std::size_t padding, ParserMemory memory, ErrorKind kind,
                Read read) {
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
        JsonParsers own;
        const LentParser parser(memory.parsers != nullptr ? *memory.parsers : own);
        od::document document = parser->iterate(json);
        od::object object;
        if (document.get_object().get(object) != simdjson::SUCCESS) {
            fail("the body is not a JSON object");
        }
        BodyReader reader(body.subspan(json_length), header_length.has_value(), std::move(owner), limits, json_length,
                          memory.buffers);
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
    return parse<InferRequest>(body, header_length, limits, std::move(owner), padding, {}, ErrorKind::invalid_input,
                               read);
}

Result<InferResponse> parse_infer_response(std::span<const std::byte> body, std::optional<std::size_t> header_length,
                                           const MessageLimits& limits, std::shared_ptr<const void> owner,
                                           std::size_t padding, ParserMemory memory) {
    const auto read = [&](od::object& object, BodyReader& reader) {
        constexpr std::string_view kWhere = "the response";
        InferResponse response;
        bool answered = false;
        for (auto field : object) {
            const std::string_view key = field.unescaped_key();
            od::value value = field.value();
            if (value.is_null()) {
                continue;
            }
            if (key == "model_name") {
                response.model_name = string_of(value, key, kWhere);
            } else if (key == "model_version") {
                response.model_version = string_of(value, key, kWhere);
            } else if (key == "id") {
                response.id = string_of(value, key, kWhere);
            } else if (key == "parameters") {
                response.parameters = parameters_in(value, kWhere);
            } else if (key == "outputs" && !answered) {
                response.outputs = reader.tensors(value, key, "an output");
                answered = true;
            }
        }
        if (!answered) {
            fail("there is no 'outputs' array");
        }
        return response;
    };
    return parse<InferResponse>(body, header_length, limits, std::move(owner), padding, memory, ErrorKind::teacher,
                                read);
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
        // Not part of the protocol, so another form of it is ignored.
        if (auto field = optional_field(object, "parameters"); field && field->type() == od::json_type::object) {
            metadata.parameters = parameters_of(object, "model metadata");
        }
        return metadata;
    };
    return parse<ModelMetadata>(std::as_bytes(std::span(json)), std::nullopt, limits, nullptr, 0, {},
                                ErrorKind::teacher, read);
}

}  // namespace distilld::kserve

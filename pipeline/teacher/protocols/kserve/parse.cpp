#include "pipeline/teacher/protocols/json_answer.hpp"
#include "pipeline/teacher/protocols/kserve/body_reader.hpp"

namespace distilld::kserve {
namespace {

namespace od = simdjson::ondemand;

constexpr std::size_t kMaxMetadataRank = 16;

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

void require(bool there, std::string_view where, std::string_view what) {
    if (!there) {
        fail(std::string(where) + " has no " + std::string(what));
    }
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

std::vector<TensorSpec> specs_in(od::value value, std::string_view field, std::size_t limit) {
    std::vector<TensorSpec> specs;
    for_each_object(value, field, limit, [&specs](od::object entry) {
        TensorSpec spec;
        std::string where = "a tensor of the model metadata";
        bool shaped = false;
        for_each_member(entry, [&](std::string_view key, od::value member) {
            if (key == "name") {
                spec.name = string_of(member, key, where);
                where = tensor_label(spec.name);
            } else if (key == "datatype") {
                spec.datatype = string_of(member, key, where);
            } else if (key == "shape") {
                spec.shape = shape_in(member, where, kMaxMetadataRank, true);
                shaped = true;
            }
        });
        require(!spec.name.empty(), where, "'name'");
        require(!spec.datatype.empty(), where, "'datatype'");
        require(shaped, where, "'shape' array");
        specs.push_back(std::move(spec));
    });
    return specs;
}

RequestedOutput requested_output(od::object entry) {
    RequestedOutput output;
    std::string where = "an output";
    Parameters parameters;
    for_each_member(entry, [&](std::string_view key, od::value value) {
        if (key == "name") {
            output.name = string_of(value, key, where);
            where = "output '" + output.name + "'";
        } else if (key == "parameters") {
            parameters = parameters_in(value, where);
        }
    });
    require(!output.name.empty(), where, "'name'");
    output.binary = take_flag(parameters, "binary_data", where);
    return output;
}

}  // namespace

Result<InferRequest> parse_infer_request(std::span<const std::byte> body, std::optional<std::size_t> header_length,
                                         const MessageLimits& limits, std::shared_ptr<const void> owner,
                                         std::size_t padding) {
    const auto read = [&](od::object& object, BodyReader& reader) {
        constexpr std::string_view kWhere = "the request";
        InferRequest request;
        bool given = false;
        for_each_member(object, [&](std::string_view key, od::value value) {
            if (key == "id") {
                request.id = string_of(value, key, kWhere);
            } else if (key == "parameters") {
                request.parameters = parameters_in(value, kWhere);
            } else if (key == "inputs" && !given) {
                request.inputs = reader.tensors(value, key, "an input");
                given = true;
            } else if (key == "outputs" && request.outputs.empty()) {
                for_each_object(value, key, limits.max_tensors,
                                [&](od::object entry) { request.outputs.push_back(requested_output(entry)); });
            }
        });
        if (!given) {
            fail("there is no 'inputs' array");
        }
        request.binary_data_output = take_flag(request.parameters, "binary_data_output", kWhere);
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
        for_each_member(object, [&](std::string_view key, od::value value) {
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
        });
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
    const auto read = [&limits](od::object& object, BodyReader&) {
        constexpr std::string_view kWhere = "model metadata";
        ModelMetadata metadata;
        bool has_inputs = false;
        bool has_outputs = false;
        for_each_member(object, [&](std::string_view key, od::value value) {
            if (key == "name") {
                metadata.name = string_of(value, key, kWhere);
            } else if (key == "platform") {
                metadata.platform = string_of(value, key, kWhere);
            } else if (key == "versions") {
                for (auto version : value.get_array()) {
                    metadata.versions.emplace_back(std::string_view(version));
                }
            } else if (key == "inputs") {
                metadata.inputs = specs_in(value, key, limits.max_tensors);
                has_inputs = true;
            } else if (key == "outputs") {
                metadata.outputs = specs_in(value, key, limits.max_tensors);
                has_outputs = true;
            } else if (key == "parameters" && value.type() == od::json_type::object) {
                // Not part of the protocol, so another form of it is ignored.
                metadata.parameters = parameters_in(value, kWhere);
            }
        });
        require(!metadata.name.empty(), kWhere, "'name'");
        require(has_inputs, kWhere, "'inputs' array");
        require(has_outputs, kWhere, "'outputs' array");
        return metadata;
    };
    return parse<ModelMetadata>(std::as_bytes(std::span(json)), std::nullopt, limits, nullptr, 0, {},
                                ErrorKind::teacher, read);
}

}  // namespace distilld::kserve

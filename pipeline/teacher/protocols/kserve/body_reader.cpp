#include "pipeline/teacher/protocols/kserve/body_reader.hpp"

#include <utility>

#include "net/body_buffer.hpp"

namespace distilld::kserve {

namespace od = simdjson::ondemand;

namespace {

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
            return std::nullopt;  // null, or a server's extension, which is ignored
    }
}

}  // namespace

void fail(std::string message) {
    throw ErrorException(invalid_input(std::move(message)));
}

std::string tensor_label(std::string_view name) {
    return "tensor '" + std::string(name) + "'";
}

std::string string_of(od::value value, std::string_view name, std::string_view where) {
    std::string_view text;
    if (value.get_string().get(text) != simdjson::SUCCESS) {
        fail(std::string(where) + ": '" + std::string(name) + "' is not a string");
    }
    return std::string(text);
}

Parameters parameters_in(od::value value, std::string_view where) {
    Parameters parameters;
    od::object fields;
    if (value.get_object().get(fields) != simdjson::SUCCESS) {
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

std::vector<std::int64_t> shape_in(od::value value, const std::string& where, std::size_t max_rank, bool wildcards) {
    od::array dimensions;
    if (value.get_array().get(dimensions) != simdjson::SUCCESS) {
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

BodyReader::BodyReader(std::span<const std::byte> binary, bool has_binary, std::shared_ptr<const void> owner,
                       const MessageLimits& limits, std::size_t json_bytes, BufferPool* buffers)
    : binary_(binary),
      has_binary_(has_binary),
      owner_(std::move(owner)),
      limits_(limits),
      json_bytes_(json_bytes),
      buffers_(buffers) {}

void BodyReader::take_binary(InferTensor& tensor, const Parameter& stated_size, std::uint64_t bytes) {
    const std::string where = tensor_label(tensor.name);
    const auto* stated = std::get_if<std::int64_t>(&stated_size);
    if (stated == nullptr || *stated < 0 || static_cast<std::uint64_t>(*stated) != bytes) {
        fail(where + ": 'binary_data_size' is not the " + std::to_string(bytes) + " bytes of its shape");
    }
    if (!has_binary_) {
        fail(where + " is announced as binary data, but there is no " + std::string(kHeaderLengthField) + " header");
    }
    if (bytes > binary_.size() - taken_) {
        fail(where + " needs " + std::to_string(bytes) + " bytes of binary data, " +
             std::to_string(binary_.size() - taken_) + " are left");
    }
    tensor.bytes = binary_.subspan(taken_, static_cast<std::size_t>(bytes));
    tensor.owner = owner_;
    tensor.binary = true;
    taken_ += static_cast<std::size_t>(bytes);
}

void BodyReader::read_json(InferTensor& tensor, std::string_view data, std::uint64_t count, std::uint64_t bytes) const {
    // A JSON number and its comma take at least two bytes, so the text bounds the memory.
    if (count > json_bytes_ / 2 + 1) {
        fail(tensor_label(tensor.name) + ": 'data' cannot hold the " + std::to_string(count) + " values of its shape");
    }
    const auto size = static_cast<std::size_t>(bytes);
    auto storage = buffers_ != nullptr ? buffers_->acquire(size) : std::make_shared<BodyBuffer>();
    storage->resize(size);
    read_data(data, tensor, count, storage->data());
    tensor.bytes = storage->bytes();
    tensor.owner = std::move(storage);
    tensor.binary = false;
}

InferTensor BodyReader::tensor(od::object object, std::string_view role) {
    InferTensor result;
    bool named = false;
    bool typed = false;
    bool shaped = false;
    std::optional<std::string_view> data;
    Parameters parameters;
    std::string where(role);
    for_each_member(object, [&](std::string_view key, od::value value) {
        if (key == "name") {
            result.name = string_of(value, key, where);
            where = tensor_label(result.name);
            named = true;
        } else if (key == "datatype") {
            result.datatype = string_of(value, key, where);
            typed = true;
        } else if (key == "shape") {
            result.shape = shape_in(value, where, limits_.max_rank, false);
            shaped = true;
        } else if (key == "parameters") {
            parameters = parameters_in(value, where);
        } else if (key == "data") {
            // Read below, after datatype and shape, which may follow it.
            od::array array;
            if (value.get_array().get(array) != simdjson::SUCCESS) {
                fail(where + ": 'data' is not an array");
            }
            data = array.raw_json().value();
        }
    });
    if (!named || !typed) {
        fail(where + " has no '" + (named ? "datatype" : "name") + "'");
    }
    if (!shaped) {
        fail(where + " has no 'shape' array");
    }
    const auto width = datatype_size(result.datatype);
    if (!width) {
        fail(where + ": datatype '" + result.datatype + "' is not supported");
    }
    const auto count = element_count(result.shape);
    if (!count || *count > limits_.max_tensor_bytes / *width ||
        *count * *width > limits_.max_tensor_bytes - tensor_bytes_) {
        fail(where + " is larger than the limit of " + std::to_string(limits_.max_tensor_bytes) + " bytes");
    }
    const std::uint64_t bytes = *count * *width;
    const auto size = parameters.find("binary_data_size");
    if (size != parameters.end() && data) {
        fail(where + " has both 'data' and 'binary_data_size'");
    }
    if (size != parameters.end()) {
        take_binary(result, size->second, bytes);
    } else if (data) {
        read_json(result, *data, *count, bytes);
    } else {
        fail(where + " has neither 'data' nor 'binary_data_size'");
    }
    tensor_bytes_ += bytes;
    return result;
}

std::vector<InferTensor> BodyReader::tensors(od::value value, std::string_view field, std::string_view role) {
    std::vector<InferTensor> result;
    for_each_object(value, field, limits_.max_tensors,
                    [&](od::object entry) { result.push_back(tensor(entry, role)); });
    return result;
}

void BodyReader::check_all_taken() const {
    if (taken_ != binary_.size()) {
        fail(std::to_string(binary_.size() - taken_) + " bytes of binary data belong to no tensor");
    }
}

}  // namespace distilld::kserve

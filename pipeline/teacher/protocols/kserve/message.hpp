#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.hpp"

namespace distilld {
class BufferPool;
class JsonParsers;
}  // namespace distilld

/// Messages of the KServe v2 / Open Inference Protocol over HTTP, with the binary tensor data extension
/// (triton-inference-server/server docs/protocol/extension_binary_data.md). Both directions, no I/O.
///
/// A message body is a JSON object, followed (if any tensor is binary) by the raw tensors in the order of the JSON:
/// little-endian, row-major, without padding. The HTTP header `Inference-Header-Content-Length` then holds the length
/// of the JSON part, and the content type is application/octet-stream.
namespace distilld::kserve {

inline constexpr std::string_view kHeaderLengthField = "Inference-Header-Content-Length";
inline constexpr std::string_view kBinaryContentType = "application/octet-stream";
inline constexpr std::string_view kJsonContentType = "application/json";

/// Bytes per element of FP16, BF16, FP32, FP64, INT8…INT64, UINT8…UINT64, BOOL; empty for another name (BYTES has no
/// fixed size and is not supported).
[[nodiscard]] std::optional<std::size_t> datatype_size(std::string_view datatype) noexcept;

/// Product of the dimensions; empty if one is negative or the product overflows.
[[nodiscard]] std::optional<std::uint64_t> element_count(std::span<const std::int64_t> shape) noexcept;

/// One input or output in the model metadata; -1 = any size.
struct TensorSpec {
    std::string name;
    std::string datatype;
    std::vector<std::int64_t> shape;
};

/// A tensor of a message. `bytes` is little-endian and row-major, product(shape) × datatype_size long, and possibly
/// unaligned inside a body: copy it, do not cast it.
struct InferTensor {
    std::string name;
    std::string datatype;
    std::vector<std::int64_t> shape;
    std::span<const std::byte> bytes;
    std::shared_ptr<const void> owner;  ///< keeps `bytes` alive; empty if the caller does
    bool binary = true;                 ///< written as binary data, or was read as such
};

/// A tensor that owns a copy of `values`. The caller must pass a matching datatype and shape.
template <class T>
[[nodiscard]] InferTensor make_tensor(std::string name, std::string datatype, std::vector<std::int64_t> shape,
                                      std::vector<T> values, bool binary = true) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
    auto storage = std::make_shared<std::vector<T>>(std::move(values));
    InferTensor tensor;
    tensor.name = std::move(name);
    tensor.datatype = std::move(datatype);
    tensor.shape = std::move(shape);
    tensor.bytes = std::as_bytes(std::span(*storage));
    tensor.owner = std::move(storage);
    tensor.binary = binary;
    return tensor;
}

/// Copies out the elements of a tensor with a datatype as wide as T (the bytes may be unaligned).
template <class T>
[[nodiscard]] std::vector<T> copy_elements(const InferTensor& tensor) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> values(tensor.bytes.size() / sizeof(T));
    if (!values.empty()) {
        std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(T));
    }
    return values;
}

using Parameter = std::variant<bool, std::int64_t, double, std::string>;
using Parameters = std::map<std::string, Parameter>;

struct RequestedOutput {
    std::string name;
    std::optional<bool> binary;  ///< absent = as InferRequest::binary_data_output
};

struct InferRequest {
    std::string id;         ///< empty = none
    Parameters parameters;  ///< without binary_data_output, which has its own field
    std::vector<InferTensor> inputs;
    std::vector<RequestedOutput> outputs;  ///< empty = all
    std::optional<bool> binary_data_output;

    /// Whether this output must be sent as binary data.
    [[nodiscard]] bool wants_binary(std::string_view output) const;
};

struct InferResponse {
    std::string model_name;
    std::string model_version;  ///< empty = none; some servers send null
    std::string id;             ///< empty = none
    Parameters parameters;
    std::vector<InferTensor> outputs;

    [[nodiscard]] const InferTensor* find(std::string_view output) const noexcept;
};

/// The contents of an HTTP message.
struct EncodedMessage {
    std::optional<std::size_t> json_header_length;  ///< set if the body holds binary data: value of the header
    std::string body;
    [[nodiscard]] std::string_view content_type() const noexcept {
        return json_header_length ? kBinaryContentType : kJsonContentType;
    }
};

/// Limits on what a parser accepts; checked before anything is allocated.
struct MessageLimits {
    std::size_t max_json_bytes = 64U << 20U;       ///< the JSON part
    std::uint64_t max_tensor_bytes = 1ULL << 32U;  ///< all tensors together, decoded
    std::size_t max_tensors = 64;
    std::size_t max_rank = 8;
};

/// Memory shared by many parsed answers; null: the parser allocates its own.
struct ParserMemory {
    JsonParsers* parsers = nullptr;
    BufferPool* buffers = nullptr;  ///< for tensors that come as JSON
};

/// Tensors with `binary` go into the binary part, others become a flat JSON `data` array. JSON has no infinities: they
/// become the largest finite value of the datatype. A NaN, a size that does not fit the shape or an unknown datatype is
/// an error that names the tensor.
[[nodiscard]] Result<EncodedMessage> build_infer_request(const InferRequest& request);
[[nodiscard]] Result<EncodedMessage> build_infer_response(const InferResponse& response);

/// The body as sent. `header_length` is the value of the HTTP header, if present. Binary tensors become views into
/// `body`, which `owner` keeps alive (no copy); JSON `data`, flat or nested, is converted into separate storage.
/// `padding` is the number of readable bytes after the body: with 64 or more, JSON is parsed in place. Members of
/// objects may come in any order. Each error names the tensor, with ErrorKind::invalid_input for a request and
/// ErrorKind::teacher for a response.
[[nodiscard]] Result<InferRequest> parse_infer_request(std::span<const std::byte> body,
                                                       std::optional<std::size_t> header_length,
                                                       const MessageLimits& limits, std::shared_ptr<const void> owner,
                                                       std::size_t padding = 0);
[[nodiscard]] Result<InferResponse> parse_infer_response(std::span<const std::byte> body,
                                                         std::optional<std::size_t> header_length,
                                                         const MessageLimits& limits, std::shared_ptr<const void> owner,
                                                         std::size_t padding = 0, ParserMemory memory = {});

/// The same for a string that the result keeps alive.
[[nodiscard]] Result<InferRequest> parse_infer_request(std::shared_ptr<const std::string> body,
                                                       std::optional<std::size_t> header_length,
                                                       const MessageLimits& limits = {});
[[nodiscard]] Result<InferResponse> parse_infer_response(std::shared_ptr<const std::string> body,
                                                         std::optional<std::size_t> header_length,
                                                         const MessageLimits& limits = {});

/// `GET /v2/models/{model}`.
struct ModelMetadata {
    std::string name;
    std::vector<std::string> versions;
    std::string platform;
    std::vector<TensorSpec> inputs;
    std::vector<TensorSpec> outputs;
    Parameters parameters;  ///< an extension: what else the server reports about the model

    [[nodiscard]] const TensorSpec* find_input(std::string_view input) const noexcept;
    [[nodiscard]] const TensorSpec* find_output(std::string_view output) const noexcept;
};

[[nodiscard]] std::string build_model_metadata(const ModelMetadata& metadata);
/// `versions` and `platform` may be null or absent.
[[nodiscard]] Result<ModelMetadata> parse_model_metadata(std::string_view json);

}  // namespace distilld::kserve

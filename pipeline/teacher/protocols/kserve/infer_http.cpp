#include "pipeline/teacher/protocols/kserve/infer_http.hpp"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

namespace distilld::kserve {
namespace {

/// Length of the JSON part, if the answer has a binary part after it.
Result<std::optional<std::size_t>> json_length_of(const HttpResponse& response) {
    const std::string* text = response.header(kHeaderLengthField);
    if (text == nullptr) {
        return std::optional<std::size_t>();
    }
    std::size_t length = 0;
    const auto parsed = std::from_chars(text->data(), text->data() + text->size(), length);
    if (parsed.ec != std::errc{} || parsed.ptr != text->data() + text->size()) {
        return teacher_error(std::string(kHeaderLengthField) + " is not a number");
    }
    return std::optional<std::size_t>(length);
}

}  // namespace

Result<HttpRequest> infer_http_request(const std::string& target, const InferRequest& message) {
    auto encoded = build_infer_request(message);
    if (!encoded) {
        return encoded.error();
    }
    HttpRequest request;
    request.target = target;
    request.content_type = std::string(encoded->content_type());
    if (encoded->json_header_length) {
        request.headers.push_back({std::string(kHeaderLengthField), std::to_string(*encoded->json_header_length)});
    }
    request.answer_headers = {std::string(kHeaderLengthField)};
    request.body = std::make_shared<const std::string>(std::move(encoded->body));
    return request;
}

Result<InferResponse> read_infer_answer(const HttpResponse& response, ParserMemory memory) {
    const auto json_length = json_length_of(response);
    if (!json_length) {
        return json_length.error();
    }
    MessageLimits limits;
    limits.max_json_bytes = response.body->size();
    limits.max_tensor_bytes = std::max<std::uint64_t>(std::uint64_t{response.body->size()} * 4, 1024);
    return parse_infer_response(response.body->bytes(), *json_length, limits, response.body, BodyBuffer::kPadding,
                                memory);
}

std::size_t held_bytes_of(const InferResponse& message, const BodyBuffer& body) {
    std::size_t bytes = 0;
    bool in_body = false;
    for (const InferTensor& tensor : message.outputs) {
        in_body = in_body || tensor.binary;
        bytes += tensor.binary ? 0 : tensor.bytes.size();
    }
    return bytes + (in_body ? body.capacity() : 0);
}

}  // namespace distilld::kserve

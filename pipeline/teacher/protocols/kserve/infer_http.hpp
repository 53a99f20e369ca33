#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "net/http_message.hpp"
#include "pipeline/teacher/protocols/kserve/message.hpp"

/// Messages of the protocol in HTTP.
namespace distilld::kserve {

/// Maximum bytes of a number in JSON, including its separators.
inline constexpr std::uint64_t kJsonNumberBytes = 32;
/// Maximum bytes of a message beside its numbers.
inline constexpr std::uint64_t kMessageBytes = 64U << 10U;

/// The POST of a message.
[[nodiscard]] Result<HttpRequest> infer_http_request(const std::string& target, const InferRequest& message);

/// The message of an answer. Binary tensors are views of the body.
[[nodiscard]] Result<InferResponse> read_infer_answer(const HttpResponse& response, ParserMemory memory);

/// Memory of the body, if a tensor lies in it, and of tensors that came as JSON.
[[nodiscard]] std::size_t held_bytes_of(const InferResponse& message, const BodyBuffer& body);

}  // namespace distilld::kserve

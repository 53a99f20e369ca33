#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/body_buffer.hpp"

namespace distilld {

inline constexpr const char* kJsonContentType = "application/json";

struct HttpHeader {
    std::string name;
    std::string value;
};

struct HttpRequest {
    std::string method = "POST";
    std::string target;                       ///< path and query
    std::string content_type;                 ///< of the body; empty: not sent
    std::vector<HttpHeader> headers;          ///< of the protocol, besides those of every request
    std::vector<std::string> answer_headers;  ///< names of the answer headers that the protocol needs
    std::shared_ptr<const std::string> body;  ///< may be null
    std::uint64_t response_limit = 0;         ///< maximum body of a 2xx answer
    /// Takes the body of a 200 answer in pieces, of any size; false: enough. Empty: the body is kept.
    std::function<bool(std::string_view)> on_piece;
    /// For the exchange on a connection; with `on_piece` for the head, then for each piece. 0 = no limit.
    std::chrono::seconds time_limit{0};
};

[[nodiscard]] inline HttpRequest make_get(std::string target) {
    HttpRequest request;
    request.method = "GET";
    request.target = std::move(target);
    return request;
}

struct HttpResponse {
    unsigned status = 0;
    std::string content_type;
    std::vector<HttpHeader> headers;                       ///< those of HttpRequest::answer_headers that were sent
    std::optional<std::chrono::milliseconds> retry_after;  ///< retry-after-ms, or Retry-After (seconds or date)
    std::shared_ptr<BodyBuffer> body;                      ///< at most kErrorBodyLimit bytes unless the status is 2xx

    /// The value of a requested header, by the requested name; null if it was not sent.
    [[nodiscard]] const std::string* header(std::string_view name) const noexcept {
        for (const HttpHeader& sent : headers) {
            if (sent.name == name) {
                return &sent.value;
            }
        }
        return nullptr;
    }
};

[[nodiscard]] inline bool is_success(const HttpResponse& response) noexcept {
    return response.status >= 200 && response.status < 300;
}

/// The body as text, empty without one; it lives as long as the response.
[[nodiscard]] inline std::string_view body_text(const HttpResponse& response) noexcept {
    if (!response.body) {
        return {};
    }
    const auto bytes = response.body->bytes();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline constexpr std::size_t kErrorBodyLimit = std::size_t{64} << 10U;

}  // namespace distilld

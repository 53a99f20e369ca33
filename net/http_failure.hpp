#pragma once

#include <boost/system/error_code.hpp>
#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "net/http_message.hpp"
#include "pipeline/core/scheduling/fetch_failure.hpp"

namespace distilld {

/// The failure of a non-2xx answer: 429 and 503 overloaded; 502 connection and 504 timeout (of the gateway); 408 and
/// other 5xx server_error; 404, and 400 for a model that is not ready, not_found; all else rejected. The message has
/// the endpoint, the status and the server's text.
[[nodiscard]] FetchError failure_of_status(const std::string& endpoint, const HttpResponse& response);

/// The server's own text in {"error":"…"}, {"error":{"message":…}}, {"message":…}, {"detail":…} or plain text, on one
/// line, at most 300 bytes.
[[nodiscard]] std::string error_text(std::string_view body);

/// Retry-After: seconds, or an HTTP date relative to `now`. Empty if it is neither.
[[nodiscard]] std::optional<std::chrono::milliseconds> parse_retry_after(std::string_view value, std::time_t now);

/// An HTTP date in its preferred form ("Sun, 06 Nov 1994 08:49:37 GMT").
[[nodiscard]] std::optional<std::time_t> parse_http_date(std::string_view value);

}  // namespace distilld

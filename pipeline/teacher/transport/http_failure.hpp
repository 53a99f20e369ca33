#pragma once

#include <boost/system/error_code.hpp>
#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "pipeline/teacher/teacher_source.hpp"
#include "pipeline/teacher/transport/http_message.hpp"

namespace distilld {

/// Failure of a non-2xx answer: 429 and 503 overloaded, 502 connection and 504 timeout (of the gateway's own), 408 and
/// other 5xx server_error, 404 and a 400 that says that the model is not ready not_found, everything else rejected. The
/// message holds the endpoint, the status and what the server said.
[[nodiscard]] FetchError failure_of_status(const std::string& endpoint, const HttpResponse& response);

/// The server's own words in {"error":"…"}, {"error":{"message":…}}, {"message":…}, {"detail":…} or plain text, on one
/// line and at most 300 bytes long.
[[nodiscard]] std::string error_text(std::string_view body);

/// Retry-After: seconds, or an HTTP date relative to `now`. Nothing when it is neither.
[[nodiscard]] std::optional<std::chrono::milliseconds> parse_retry_after(std::string_view value, std::time_t now);

/// An HTTP date in its preferred form ("Sun, 06 Nov 1994 08:49:37 GMT").
[[nodiscard]] std::optional<std::time_t> parse_http_date(std::string_view value);

}  // namespace distilld

#pragma once

#include <string>
#include <string_view>

#include "api/http_message.hpp"

namespace distilld::http {

/// An RFC 9457 answer for what goes wrong outside the handlers: type, title, status, detail, and the member `error`
/// that OpenAI's clients read first.
[[nodiscard]] api::Response make_problem(unsigned status, std::string_view detail);

/// Reason phrase of a status, "Unknown Status" when there is none.
[[nodiscard]] std::string reason_phrase(unsigned status);

}  // namespace distilld::http

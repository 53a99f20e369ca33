#pragma once

#include <optional>
#include <string_view>

#include "server/http/http_message.hpp"

namespace distilld {

/// The secret of "Bearer SECRET"; nullopt for another scheme, or several such headers.
[[nodiscard]] std::optional<std::string_view> bearer_of(const http::Request& request);

}  // namespace distilld

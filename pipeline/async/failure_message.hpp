#pragma once

#include <exception>
#include <string>

namespace distilld {

/// What the exception says of itself. `failure` is not null.
[[nodiscard]] std::string failure_message(const std::exception_ptr& failure);

}  // namespace distilld

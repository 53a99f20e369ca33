#pragma once

#include <exception>
#include <string>

namespace distilld {

/// The message of the exception. `failure` must not be null.
[[nodiscard]] std::string failure_message(const std::exception_ptr& failure);

}  // namespace distilld

#pragma once

#include <boost/system/error_code.hpp>
#include <exception>

namespace distilld {

/// True for operation_aborted, which is how an operation that was cancelled ends: what was asked for, no failure.
[[nodiscard]] bool is_abort(const boost::system::error_code& error) noexcept;

/// The same for what a coroutine ended with: a system_error with that code. False for a null pointer.
[[nodiscard]] bool is_abort(const std::exception_ptr& failure) noexcept;

}  // namespace distilld

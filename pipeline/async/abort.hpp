#pragma once

#include <boost/system/error_code.hpp>
#include <exception>

namespace distilld {

/// Whether this is operation_aborted: a cancelled operation ended as requested, so it is not a failure.
[[nodiscard]] bool is_abort(const boost::system::error_code& error) noexcept;

/// The same for the exception of a coroutine: a system_error with that code. False for a null pointer.
[[nodiscard]] bool is_abort(const std::exception_ptr& failure) noexcept;

}  // namespace distilld

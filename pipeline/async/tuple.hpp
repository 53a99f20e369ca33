#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace distilld {

/// Completion token of socket and timer operations: `co_await` returns a tuple with the error_code first, so an error
/// is a value, not an exception. (If the coroutine was cancelled before, the co_await itself still throws
/// operation_aborted.)
inline constexpr auto kTuple = boost::asio::as_tuple(boost::asio::use_awaitable);

}  // namespace distilld

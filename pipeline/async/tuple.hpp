#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace distilld {

/// Completion token of socket and timer operations: `co_await` gives a tuple whose first element is the error_code, so
/// that an error is a value and no exception. (A coroutine that was cancelled before still gets operation_aborted
/// thrown by the co_await itself.)
inline constexpr auto kTuple = boost::asio::as_tuple(boost::asio::use_awaitable);

}  // namespace distilld

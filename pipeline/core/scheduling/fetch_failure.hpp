#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/enum_names.hpp"
#include "base/error.hpp"

namespace distilld {

/// How a teacher request can fail; decides what the scheduler does next.
enum class FailureKind {
    connection,    ///< no such host, refused, reset, closed within a body, 502: waited out, counts against the endpoint
    timeout,       ///< no answer within the deadline, or 504: waited out, the endpoint gets fewer requests at a time
    overloaded,    ///< 429 or 503: waited out, no sooner than Retry-After; the endpoint gets fewer requests at a time
    server_error,  ///< other 5xx: spends an attempt, counts against the endpoint
    bad_response,  ///< a 2xx that violates the protocol: spends an attempt, counts against the endpoint
    not_found,     ///< 404, or a message that the model does not exist: a server that is loading its model
    rejected,      ///< other 4xx, TLS refusal: retries are useless at this endpoint
    cancelled,     ///< by us
};
BOOST_DESCRIBE_ENUM(FailureKind, connection, timeout, overloaded, server_error, bad_response, not_found, rejected,
                    cancelled)

/// A fault of the environment, which costs time but no attempts: no answer, or a server or model that is not ready.
/// (`not_found` is one only until the endpoint has answered; afterwards it is a rejection.)
[[nodiscard]] constexpr bool is_outage(FailureKind kind) noexcept {
    return kind == FailureKind::connection || kind == FailureKind::timeout || kind == FailureKind::overloaded ||
           kind == FailureKind::not_found;
}

/// Why one request failed.
struct FetchError {
    FailureKind kind = FailureKind::connection;
    std::string message;                                   ///< names the endpoint
    std::optional<std::chrono::milliseconds> retry_after;  ///< requested by the server
    /// The answer was readable, but its rows are unusable. A retry yields the same, unless the teacher has changed.
    bool unusable = false;
};

/// Found by boost::system::result through argument-dependent lookup.
[[noreturn]] inline void throw_exception_from_error(const FetchError& error, const boost::source_location&) {
    throw ErrorException(teacher_error(error.message));
}

template <class T>
using FetchResult = boost::system::result<T, FetchError>;

}  // namespace distilld

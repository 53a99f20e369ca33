#pragma once

namespace distilld {

/// How a teacher request can fail; decides what the scheduler does next.
enum class FailureKind {
    connection,    ///< no such host, refused, reset, closed in mid-body, 502: waited out, counts against the endpoint
    timeout,       ///< no answer within the deadline, or 504: waited out, the endpoint gets fewer at a time
    overloaded,    ///< 429 or 503: waited out, no sooner than Retry-After; the endpoint gets fewer at a time
    server_error,  ///< other 5xx: spends an attempt, counts against the endpoint
    bad_response,  ///< a 2xx that is not what the protocol says: spends an attempt, counts against the endpoint
    not_found,     ///< 404, or what says that the model is not there: so a server answers while it loads its model
    rejected,      ///< other 4xx, TLS refusal: this endpoint will not answer however often it is asked
    cancelled,     ///< by us
};

[[nodiscard]] constexpr const char* to_string(FailureKind kind) noexcept {
    switch (kind) {
        case FailureKind::connection:
            return "connection";
        case FailureKind::timeout:
            return "timeout";
        case FailureKind::overloaded:
            return "overloaded";
        case FailureKind::server_error:
            return "server_error";
        case FailureKind::bad_response:
            return "bad_response";
        case FailureKind::not_found:
            return "not_found";
        case FailureKind::rejected:
            return "rejected";
        case FailureKind::cancelled:
            return "cancelled";
    }
    return "unknown";
}

/// A fault of the surroundings, which costs time and no attempts: nobody answered, or somebody who is not ready yet, or
/// does not have the model yet. (A `not_found` is one only until the endpoint has answered; afterwards it is a
/// rejection.)
[[nodiscard]] constexpr bool is_outage(FailureKind kind) noexcept {
    return kind == FailureKind::connection || kind == FailureKind::timeout || kind == FailureKind::overloaded ||
           kind == FailureKind::not_found;
}

}  // namespace distilld

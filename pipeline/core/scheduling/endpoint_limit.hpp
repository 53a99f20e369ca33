#pragma once

#include <cstdint>
#include <optional>

#include "base/time.hpp"

namespace distilld {

/// Limit of requests in flight to one endpoint: none, until it refuses requests for load or lets them time out. Then
/// half of its requests in flight, at most once for the requests issued before the last halving. Answers raise it
/// again: it doubles per generation up to nine tenths of the last refused load, then grows by one in four generations.
class EndpointLimit {
  public:
    [[nodiscard]] bool admits(std::uint32_t in_flight) const noexcept { return !limited_ || in_flight < limit(); }
    /// `ceiling` if the endpoint has refused nothing.
    [[nodiscard]] std::uint32_t or_ceiling(std::uint32_t ceiling) const noexcept;

    /// One of `in_flight` requests (itself included) was answered. No endpoint gets more than `ceiling`.
    void on_success(std::uint32_t in_flight, std::uint32_t ceiling);
    /// One of `in_flight` requests (itself included), issued at `issued`, was refused for load or timed out. True if it
    /// was issued after the last halving.
    bool on_overload(Instant issued, std::uint32_t in_flight, Instant now);
    /// It was out of service, not overloaded: it starts with one request, and its former load is forgotten.
    void restart() noexcept;

  private:
    [[nodiscard]] std::uint32_t limit() const noexcept { return static_cast<std::uint32_t>(limit_); }

    bool limited_ = false;
    double limit_ = 1;             // at least 1
    std::uint32_t complaint_ = 0;  // requests in flight at the last refusal; 0 = unknown
    std::uint32_t calm_ = 0;       // answers since
    std::optional<Instant> last_halving_;
};

}  // namespace distilld

#pragma once

#include <cstdint>
#include <optional>

#include "base/time.hpp"

namespace distilld {

/// How many requests one endpoint gets at a time: as many as there are, until it refuses some for load or lets them
/// time out. Then half of what it had, at most once for the requests issued before the last halving, and up again by
/// its answers: twice as many a generation up to nine tenths of where it complained, beyond that one in four
/// generations.
class EndpointLimit {
  public:
    [[nodiscard]] bool admits(std::uint32_t in_flight) const noexcept { return !limited_ || in_flight < limit(); }
    /// `ceiling` where the endpoint has not complained.
    [[nodiscard]] std::uint32_t or_ceiling(std::uint32_t ceiling) const noexcept;

    /// One of `in_flight` requests (itself included) was answered. Nobody gets more than `ceiling`.
    void on_success(std::uint32_t in_flight, std::uint32_t ceiling);
    /// One of `in_flight` requests (itself included), issued at `issued`, was refused for load or timed out. True when
    /// it was issued after the last halving, so that it says something new.
    bool on_overload(Instant issued, std::uint32_t in_flight, Instant now);
    /// It was no load that it complained of, but it was out of service: it starts with one request, and what it bore at
    /// last is no mark to go by.
    void restart() noexcept;

  private:
    [[nodiscard]] std::uint32_t limit() const noexcept { return static_cast<std::uint32_t>(limit_); }

    bool limited_ = false;
    double limit_ = 1;             // at least 1
    std::uint32_t complaint_ = 0;  // in flight when it complained last; 0 = not known
    std::uint32_t calm_ = 0;       // answers since
    std::optional<Instant> last_halving_;
};

}  // namespace distilld

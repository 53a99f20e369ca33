#pragma once

#include <cstdint>

#include "base/time.hpp"

namespace distilld {

struct LimitOptions {
    bool adaptive = false;       ///< look for the smallest limit that hides the teacher; else hold `ceiling`
    std::uint32_t ceiling = 8;   ///< never more requests in flight than this
    std::uint32_t initial = 2;   ///< where an adaptive controller starts
    double target_stall = 0.01;  ///< share of the time the student may wait
};

/// Requests that may be in flight over all endpoints (C). Grows only while the student waits and every slot is in use.
/// EndpointLimit handles the capacity of single endpoints.
///
/// Growth follows Little's law: hiding latency T behind student time S takes C ≥ T/S. The first T and S come from a
/// nearly idle teacher and are the most reliable, so an adaptive controller goes to 1.1·T/S at once. While the student
/// stalls, it then follows 1.1·T/S as measured (at most four-fold per move), and grows by eighths up to 2·T/S, which
/// covers jitter. T/S also grows with C if the teacher is saturated and only queues. So if growth by half raises
/// throughput (C/T) by less than a quarter of that, it is undone and not retried for a while.
class LimitController {
  public:
    explicit LimitController(LimitOptions options);

    [[nodiscard]] std::uint32_t limit() const noexcept { return limit_; }
    void set_ceiling(std::uint32_t ceiling);

    /// The student took micro-batch `n` (counted from the start of the run) after waiting `waited`, and trained the one
    /// before it for `busy`. `latency`: mean of about the last `limit` requests; `min_latency`: minimum of those
    /// remembered. `slots_full`: every slot was in use while the student waited.
    void on_taken(std::uint64_t n, Nanos waited, Nanos busy, Nanos latency, Nanos min_latency, bool slots_full);

  private:
    bool jump(std::uint64_t n, double needed);
    void grow(std::uint64_t n, double needed, double throughput);
    void shrink_if_calm(double needed, double stall);
    void move_to(std::uint32_t limit, std::uint64_t n);
    void reset_measure();

    LimitOptions options_;
    std::uint32_t limit_;
    std::uint64_t gate_ = 0;  // micro-batches below it were issued under an earlier limit and do not count
    // Measured since the last move.
    Nanos waited_{0};
    Nanos busy_{0};
    std::uint64_t taken_ = 0;
    bool full_ = false;
    // Last limit with a measured throughput, and this throughput in micro-batches per second.
    std::uint32_t proven_limit_ = 0;
    double proven_throughput_ = 0;
    std::uint64_t hold_ = 0;  // micro-batches for which the limit does not grow
    std::uint64_t hold_length_ = 64;
    bool jumped_ = false;
};

}  // namespace distilld

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

/// How many requests may be in flight over all endpoints (C). Grows only while the student waits and every slot is in
/// use. What an endpoint can bear is not its matter but EndpointLimit's.
///
/// Growth follows Little's law: hiding latency T behind student time S takes C ≥ T/S. The first T and S to be known, of
/// a teacher that has had next to nothing to do, are the best there are, so an adaptive controller goes to 1.1·T/S at
/// once. From there a stalled one goes on to 1.1·T/S as measured (four-fold at most in one move), then by eighths up to
/// 2·T/S, which is what jitter can ask for. T/S itself grows with C when the teacher is saturated and only queues, so a
/// growth by half that brought less than a quarter of it in throughput (C/T) is taken back and not tried again for a
/// while.
class LimitController {
  public:
    explicit LimitController(LimitOptions options);

    [[nodiscard]] std::uint32_t limit() const noexcept { return limit_; }
    void set_ceiling(std::uint32_t ceiling);

    /// The student took micro-batch `n` (counted from the start of the run) after waiting `waited`, and trained the one
    /// before it for `busy`. `latency`: mean of the last requests, about `limit` of them; `min_latency`: the least of
    /// those that are remembered. `slots_full`: every slot was in use while the student waited.
    void on_taken(std::uint64_t n, Nanos waited, Nanos busy, Nanos latency, Nanos min_latency, bool slots_full);

  private:
    bool jump(std::uint64_t n, double needed);
    void grow(std::uint64_t n, double needed, double throughput);
    void shrink_if_calm(double needed, double stall);
    void move_to(std::uint32_t limit, std::uint64_t n);
    void reset_measure();

    LimitOptions options_;
    std::uint32_t limit_;
    std::uint64_t gate_ = 0;  // micro-batches below it were issued under an earlier limit and say nothing of this one
    // Measured since the last move.
    Nanos waited_{0};
    Nanos busy_{0};
    std::uint64_t taken_ = 0;
    bool full_ = false;
    // Last limit whose throughput was seen, and that throughput in micro-batches a second.
    std::uint32_t proven_limit_ = 0;
    double proven_throughput_ = 0;
    std::uint64_t hold_ = 0;  // takes for which the limit does not grow
    std::uint64_t hold_length_ = 64;
    bool jumped_ = false;
};

}  // namespace distilld

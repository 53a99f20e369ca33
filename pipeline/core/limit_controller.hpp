#pragma once

#include <cstdint>

#include "pipeline/core/time.hpp"

namespace distilld {

struct LimitOptions {
    bool adaptive = false;      ///< look for the smallest limit that hides the teacher; else hold `ceiling`
    std::uint32_t ceiling = 8;  ///< never more requests in flight than this
    std::uint32_t initial = 2;  ///< where an adaptive controller starts
    double target_stall = 0.01; ///< share of the time the student may wait
};

/// How many requests may be in flight (C). Grows only while the student waits and every slot is in use; halves when the
/// teacher says it is overloaded or times out, at most once for the requests issued before the last halving.
///
/// Growth follows Little's law: hiding latency T behind student time S takes C ≥ T/S, so a stalled controller goes to
/// 1.1·T/S as measured (four-fold at most in one move), then by one. A move that brought no throughput (the teacher is
/// saturated and only queues) is taken back and not tried again for a while.
class LimitController {
  public:
    explicit LimitController(LimitOptions options);

    [[nodiscard]] std::uint32_t limit() const noexcept { return limit_; }
    void set_ceiling(std::uint32_t ceiling);

    /// The student took micro-batch `n` after waiting `waited`, and trained the one before it for `busy`.
    /// `next_issue`: number of the next micro-batch to be issued. `latency`: mean of recent requests.
    /// `slots_full`: every slot was in use while the student waited.
    void on_taken(std::uint64_t n, Nanos waited, Nanos busy, double latency, bool slots_full, std::uint64_t next_issue,
                  Nanos now);
    /// A request issued at `issued` was refused for load or timed out.
    void on_overload(Nanos issued, Nanos now);

  private:
    void move_to(std::uint32_t limit, std::uint64_t next_issue);
    void reset_measure();

    LimitOptions options_;
    std::uint32_t limit_;
    std::uint64_t gate_ = 0;  // micro-batches below it were issued under an earlier limit and say nothing of this one
    // Measured since the last move.
    double waited_ = 0;
    double busy_ = 0;
    std::uint64_t taken_ = 0;
    bool full_ = false;
    Nanos measure_began_ = 0;
    // For taking back a move that brought nothing.
    double rate_before_ = 0;
    std::uint32_t limit_before_ = 0;
    std::uint64_t hold_ = 0;  // takes for which the limit does not grow
    std::uint64_t hold_length_ = 64;
    // After overload.
    Nanos last_decrease_ = -1;
    std::uint32_t overloaded_at_ = 0;  // limit at which the teacher complained; approached by single steps
    std::uint64_t taken_since_overload_ = 0;
};

}  // namespace distilld

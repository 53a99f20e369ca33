#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "base/time.hpp"

namespace distilld {

/// Judges the steps that were skipped because loss or gradient norm was not finite: warns now and then, and fails when
/// only such steps come. No clock of its own; one thread.
class NonfiniteSteps {
  public:
    /// The `max_in_a_row`-th in a row (at least 1) is a failure.
    explicit NonfiniteSteps(std::uint64_t max_in_a_row) : max_in_a_row_(max_in_a_row) {}

    struct Step {
        std::uint64_t number = 0;  ///< steps done, including this one
        bool finite = true;
        double loss = 0;
        double grad_norm = 0;
        double learning_rate = 0;
        Instant at;
    };
    struct Verdict {
        std::string warning;           ///< empty: nothing to report, or too soon
        std::optional<Error> failure;  ///< the run must end
    };
    Verdict judge(const Step& step);

    /// Of this run.
    [[nodiscard]] std::uint64_t total() const noexcept { return total_; }

  private:
    std::uint64_t max_in_a_row_;
    std::uint64_t in_a_row_ = 0;
    std::uint64_t total_ = 0;
    std::optional<Instant> warned_at_;
};

}  // namespace distilld

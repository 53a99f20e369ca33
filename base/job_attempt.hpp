#pragma once

#include <cstdint>
#include <string>

#include "base/error.hpp"

namespace distilld {

/// One start of a job's worker. The service numbers the starts of a job from 1; the workers of all ranks of a start
/// share its number.
struct JobAttempt {
    std::string job{};         ///< the job's id; empty: none, and the number is 0
    std::uint64_t number = 0;  ///< the highest one is the job's current worker

    /// Whether `other` is a start of the same job. Runs without a job have nothing in common.
    [[nodiscard]] bool same_job(const JobAttempt& other) const { return !job.empty() && job == other.job; }
};

/// The error of a worker that another one has replaced at `place`; nothing is changed there.
[[nodiscard]] inline Error replaced_error(const std::string& place, const JobAttempt& mine, const JobAttempt& by) {
    if (!mine.same_job(by)) {
        return io_error(place + ": another run has taken it while this one stood still" +
                        (by.job.empty() ? "" : " (" + by.job + ")") + "; nothing was changed");
    }
    return io_error(place + ": attempt " + std::to_string(mine.number) + " of " + mine.job +
                    " was replaced by attempt " + std::to_string(by.number) + "; nothing was changed");
}

}  // namespace distilld

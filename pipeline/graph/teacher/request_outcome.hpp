#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "pipeline/core/scheduling/fetch_failure.hpp"
#include "pipeline/core/scheduling/prefetch_scheduler.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// The name of an ended request in a trace.
[[nodiscard]] inline const char* span_name(const IssueAction& issue, const FetchResult<EncodedAnswer>& answer) {
    if (!answer) {
        return to_string(answer.error().kind);
    }
    if (issue.hedge) {
        return "hedge";
    }
    return issue.attempt > 0 ? "retry" : "request";
}

/// Unusable rows, by micro-batch and endpoint. An endpoint that gives the same ones twice would give them however often
/// it is asked.
class RepeatedFaults {
  public:
    /// The kind of failure that the scheduler is told.
    [[nodiscard]] FailureKind kind_of(std::uint64_t micro_batch, std::uint32_t endpoint, const FetchError& error) {
        if (!error.unusable) {
            return error.kind;
        }
        const std::string before = std::exchange(said_[{micro_batch, endpoint}], error.message);
        return before == error.message ? FailureKind::rejected : error.kind;
    }
    void forget(std::uint64_t micro_batch) {
        said_.erase(said_.lower_bound({micro_batch, 0}), said_.lower_bound({micro_batch + 1, 0}));
    }

  private:
    std::map<std::pair<std::uint64_t, std::uint32_t>, std::string> said_;
};

}  // namespace distilld

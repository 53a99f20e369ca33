#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <optional>
#include <vector>

#include "pipeline/core/micro_batch.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld {

/// The sum of Student::evaluate() over the batches, one after the other on `compute`. Nothing when `stopped` says so
/// before one of them, which is asked on the caller's executor. All that is referred to must outlive the call.
boost::asio::awaitable<std::optional<EvalStats>> evaluate_batches(Student& student,
                                                                  const std::vector<TokenBatch>& batches,
                                                                  boost::asio::any_io_executor compute,
                                                                  std::function<bool()> stopped);

/// Mean cross entropy of the target tokens; nothing when there are none.
[[nodiscard]] inline std::optional<double> mean_loss(const EvalStats& total) {
    return total.target_tokens > 0 ? std::optional(total.ce_sum / static_cast<double>(total.target_tokens))
                                   : std::nullopt;
}

}  // namespace distilld

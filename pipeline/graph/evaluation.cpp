#include "pipeline/graph/evaluation.hpp"

#include <utility>

#include "pipeline/async/run_on.hpp"

namespace distilld {

boost::asio::awaitable<std::optional<EvalStats>> evaluate_batches(Student& student,
                                                                  const std::vector<TokenBatch>& batches,
                                                                  boost::asio::any_io_executor compute,
                                                                  std::function<bool()> stopped) {
    EvalStats total;
    for (const TokenBatch& batch : batches) {
        if (stopped()) {
            co_return std::nullopt;
        }
        auto work = [&student, &batch] { return student.evaluate(batch); };
        auto evaluating = run_on(compute, std::move(work));
        const EvalStats stats = co_await std::move(evaluating);
        total.ce_sum += stats.ce_sum;
        total.target_tokens += stats.target_tokens;
    }
    co_return total;
}

}  // namespace distilld

#include "pipeline/graph/plan_stage.hpp"

#include <utility>

#include "pipeline/async/run_on.hpp"

namespace distilld {

namespace asio = boost::asio;

PlanStage::PlanStage(asio::any_io_executor planning, std::shared_ptr<BatchSource> batches)
    : planning_(std::move(planning)), batches_(std::move(batches)) {}

asio::awaitable<PlannedBatch> PlanStage::batch(std::uint64_t number) {
    if (!kept_.contains(number)) {
        auto make = [batches = batches_, number] {
            const Instant began = steady_now();
            PlannedBatch planned = batches->batch(number);
            return std::pair(std::move(planned), steady_now() - began);
        };
        auto making = run_on(planning_, std::move(make));
        auto made = co_await std::move(making);
        clock_.add_busy(made.second);
        kept_.emplace(number, std::move(made.first));
    }
    co_return kept_.at(number);
}

}  // namespace distilld

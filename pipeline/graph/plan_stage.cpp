#include "pipeline/graph/plan_stage.hpp"

#include <utility>

#include "base/scope_exit.hpp"
#include "pipeline/async/run_on.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

struct Made {
    PlannedBatch planned;
    Instant began;
    Instant ended;
};

}  // namespace

PlanStage::PlanStage(asio::any_io_executor io, asio::any_io_executor planning, std::shared_ptr<BatchSource> batches,
                     TraceWriter* trace)
    : planning_(std::move(planning)), batches_(std::move(batches)), trace_(trace), made_(std::move(io)) {}

asio::awaitable<PlannedBatch> PlanStage::batch(std::uint64_t number) {
    while (being_made_.contains(number)) {
        co_await made_.wait();
    }
    if (!kept_.contains(number)) {
        being_made_.insert(number);
        const ScopeExit made_one([this, number] {
            being_made_.erase(number);
            made_.notify();
        });
        auto make = [batches = batches_, number] {
            const Instant began = steady_now();
            PlannedBatch planned = batches->batch(number);
            return Made{std::move(planned), began, steady_now()};
        };
        auto made = co_await run_on(planning_, std::move(make));
        clock_.add_busy(made.ended - made.began);
        if (trace_ != nullptr) {
            trace_->span(Stage::plan, "plan", made.began, made.ended, number);
        }
        kept_.emplace(number, std::move(made.planned));
    }
    co_return kept_.at(number);
}

asio::awaitable<std::uint64_t> PlanStage::append(std::vector<std::uint64_t> rows) {
    auto add = [batches = batches_, more = std::move(rows)] { return batches->append(more); };
    co_return co_await run_on(planning_, std::move(add));
}

}  // namespace distilld

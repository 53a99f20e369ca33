#include "pipeline/graph/staging_stage.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <utility>

#include "pipeline/async/run_on.hpp"
#include "pipeline/core/token_count.hpp"
#include "pipeline/graph/thrown_by.hpp"

namespace distilld {

namespace asio = boost::asio;

StagingStage::StagingStage(const GraphExecutors& executors, Student& student, TeacherStage& teacher, TraceWriter* trace)
    : staging_(executors.staging),
      student_(student),
      teacher_(teacher),
      trace_(trace),
      output_(executors.io, std::max<std::size_t>(1, executors.replicas.size())) {}

asio::awaitable<void> StagingStage::run() {
    const std::exception_ptr thrown = co_await thrown_by(stage_all());
    clock_.enter(StageClock::State::idle);
    output_.close();
    rethrow_if(thrown);
}

asio::awaitable<void> StagingStage::stage_all() {
    for (bool taken = true; taken;) {
        clock_.enter(StageClock::State::wait_input);
        std::optional<MicroBatch> batch = co_await teacher_.next();
        if (!batch) {
            co_return;
        }
        clock_.enter(StageClock::State::busy);
        StagedMicroBatch staged = co_await stage(std::move(*batch));
        clock_.enter(StageClock::State::wait_output);
        taken = co_await output_.send(std::move(staged));
    }
}

asio::awaitable<StagedMicroBatch> StagingStage::stage(MicroBatch batch) {
    StagedMicroBatch staged;
    staged.number = batch.own_number;
    staged.positions = input_positions(*batch.tokens);
    const TokenBatch& tokens = *batch.tokens;
    // Documents that are kept apart are staged without padding.
    const bool padded = tokens.documents.empty();
    const std::uint64_t all = padded ? std::uint64_t{tokens.rows} * tokens.columns : staged.positions;
    staged.padding = all - staged.positions;
    staged_ += all;
    padding_ += staged.padding;
    const Instant began = steady_now();
    auto make = [this, moved = std::make_shared<MicroBatch>(std::move(batch))] {
        return student_.stage(std::move(*moved));
    };
    staged.batch = co_await run_on(staging_, std::move(make));
    if (trace_ != nullptr) {
        trace_->span(Stage::staging, "stage", began, steady_now(), staged.number);
    }
    co_return staged;
}

}  // namespace distilld

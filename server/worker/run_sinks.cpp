#include "server/worker/run_sinks.hpp"

#include <utility>

#include "base/environment.hpp"
#include "server/worker/run_plan.hpp"

namespace distilld {

Result<void> open_run_sinks(PreparedRun& run, bool ordered, const EmitEvent& emit) {
    sinks::SinkContext context;
    context.spec = run.spec;
    context.spec_json = sinks::public_spec(run.spec);
    context.job_id = run.attempt.job;
    context.first_step = run.resumed.step;
    context.steps = batch_plan(run).steps_of(run.spec.training.micro_batches);
    context.goes_on = ordered || run.resumed.step > 0;
    context.environment = [](const char* name) { return environment_variable(name).value_or(""); };
    context.replaces = run.output_fence() != nullptr && run.output_fence()->has_replaced();
    const auto warn = [emit](const std::string& text) { emit(LogEvent{"warn", text}); };
    Result<std::unique_ptr<sinks::RunSinks>> opened = sinks::open_sinks(context, warn);
    if (!opened) {
        return opened.error();
    }
    run.sinks = std::move(*opened);
    return {};
}

}  // namespace distilld

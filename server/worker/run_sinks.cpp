#include "server/worker/run_sinks.hpp"

#include <cstdlib>
#include <utility>

#include "server/worker/run_plan.hpp"

namespace distilld {

namespace {

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

}  // namespace

Result<void> open_run_sinks(PreparedRun& run, bool ordered, const EmitEvent& emit) {
    sinks::SinkContext context;
    context.spec = run.spec;
    context.spec_json = sinks::public_spec(run.spec);
    context.job_id = run.attempt.job;
    context.first_step = run.resumed.step;
    context.steps = batch_plan(run).steps_of(run.spec.training.micro_batches);
    context.goes_on = ordered || run.resumed.step > 0;
    context.environment = environment;
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

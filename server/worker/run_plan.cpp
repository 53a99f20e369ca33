#include "server/worker/run_plan.hpp"

#include <memory>
#include <utility>
#include <vector>

#include "models/network/effective_dtype.hpp"
#include "pipeline/core/automatic_batch.hpp"
#include "pipeline/core/lr_schedule.hpp"
#include "server/worker/starting_point.hpp"

namespace distilld {

RunEnvironment run_environment_of(const PreparedRun& run) {
    RunEnvironment environment{models::libtorch_version()};
    environment.rows_by_length = groups_rows_by_length(run);
    environment.planned_batch_size = run.planned_batch_size;
    environment.ends_epochs = ends_epochs(run);
    for (const ConnectedTeacher& teacher : run.teachers) {
        environment.teachers[teacher.name] = {teacher.info.fingerprint, teacher.info.deterministic};
    }
    return environment;
}

bool groups_rows_by_length(const PreparedRun& run) {
    const DatasetSpec& dataset = run.spec.dataset;
    const bool first_run = run.resumed_from.empty();
    return dataset.packing == Packing::off && dataset.shuffle != Shuffle::off &&
           (first_run || rows_were_by_length(run.resumed.spec_json));
}

bool ends_epochs(const PreparedRun& run) {
    return run.resumed_from.empty() ? run.spec.training.epochs.has_value() : ended_epochs(run.resumed.spec_json);
}

BatchPlan batch_plan(const PreparedRun& run) {
    const JobSpec& spec = run.spec;
    RowOrder order{spec.dataset.shuffle, spec.dataset.shuffle_block_rows};
    if (groups_rows_by_length(run)) {
        auto lengths = std::make_shared<std::vector<std::uint32_t>>(run.dataset->row_count());
        for (std::uint64_t row = 0; row < lengths->size(); ++row) {
            (*lengths)[row] = run.dataset->row_length(row);
        }
        order.lengths = std::move(lengths);
        order.grouped_by = run.planned_batch_size;
    }
    order.ends_epochs = ends_epochs(run);
    return {run.dataset->row_count(), spec.training.batch_size, spec.training.seed, std::move(order)};
}

std::string identity_of(const PreparedRun& run) {
    return make_run_identity(run.spec, run.data_hash, api::spec_table(), run_environment_of(run));
}

Result<void> settle_steps(PreparedRun& run, const EmitEvent& emit) {
    const TrainingSpec& training = run.spec.training;
    const std::uint64_t rows = run.dataset->row_count();
    const std::uint64_t of_step = std::uint64_t{training.batch_size} * training.micro_batches;
    run.total_steps = training.max_steps
                          ? *training.max_steps
                          : steps_of_epochs(rows, of_step, training.epochs.value_or(1.0), ends_epochs(run));
    const std::string why = why_nothing_is_learnt(training, run.total_steps);
    if (run.resumed_from.empty() && !why.empty()) {
        return invalid_input(why);
    }
    if (run.student->parameter_count() == 0) {
        return invalid_input("/student: none of its parameters is trained, so no weight would change");
    }
    if (LogEvent line = steps_line(training, rows, run.total_steps, ends_epochs(run)); !line.message.empty()) {
        emit(std::move(line));
    }
    return check_length(run.spec, run.total_steps, run.resumed.step, run.resumed_from);
}

}  // namespace distilld

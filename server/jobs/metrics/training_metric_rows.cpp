#include <cmath>

#include "pipeline/core/stage.hpp"
#include "server/jobs/metrics/metric_row_parts.hpp"

namespace distilld {
namespace {

using enum MetricType;

MetricSamples tokens_by_role(const JobRun& run) {
    const auto answered = run.progress.fetch.completed * run.micro_batch_tokens;
    const auto trained = run.progress.generates ? 0 : run.progress.tokens;
    return std::vector<MetricSample>{{{"student"}, metric_number(trained)}, {{"teacher"}, metric_number(answered)}};
}

double steps_done(const JobRun& run) {
    return metric_number(run.progress.step) - metric_number(run.first_step);
}

MetricSamples busy_by_stage(const JobRun& run) {
    std::vector<MetricSample> samples;
    for (const auto& stage : run.progress.stages) {
        samples.push_back({{stage.stage}, stage.busy_seconds});
    }
    return samples;
}

MetricSamples waits_by_stage(const JobRun& run) {
    std::vector<MetricSample> samples;
    for (const auto& stage : run.progress.stages) {
        samples.push_back({{"input", stage.stage}, stage.wait_input_seconds});
        samples.push_back({{"output", stage.stage}, stage.wait_output_seconds});
    }
    return samples;
}

MetricSamples step_durations(const JobRun& run) {
    const auto steps = histogram_of(run.progress.durations.steps);
    return steps ? std::vector<MetricSample>{{{}, *steps}} : std::vector<MetricSample>();
}

MetricSamples checkpoint_durations(const JobRun& run) {
    const auto written = histogram_of(run.checkpoints.seconds);
    return written ? std::vector<MetricSample>{{{}, *written}} : std::vector<MetricSample>();
}

/// Seconds of teacher work that the student did not wait for.
double hidden_seconds(const JobRun& run) {
    for (const auto& stage : run.progress.stages) {
        if (stage.stage == stage_name(Stage::teacher)) {
            const double hidden = stage.busy_seconds * run.progress.teacher_hidden_fraction;
            return std::isfinite(hidden) ? hidden : 0.0;
        }
    }
    return 0.0;
}

template <class Figure>
auto of_evaluation(Figure figure) {
    return [figure](const JobRun& run) -> MetricSamples {
        const std::optional<double> value = run.evaluation ? figure(*run.evaluation) : std::nullopt;
        return value ? std::vector<MetricSample>{{{}, *value}} : std::vector<MetricSample>();
    };
}

MetricSamples last_step_time(const JobRun& run) {
    return run.last_step_time > 0 ? std::vector<MetricSample>{{{}, run.last_step_time}} : std::vector<MetricSample>();
}

MetricSamples bottleneck(const JobRun& run) {
    std::vector<MetricSample> samples;
    for (const auto& stage : run.progress.stages) {
        samples.push_back({{stage.stage}, stage.stage == run.progress.bottleneck ? 1.0 : 0.0});
    }
    return samples;
}

MetricSamples queues(const JobRun& run, std::uint64_t StageQueue::* value) {
    std::vector<MetricSample> samples;
    for (const auto& queue : run.progress.measures.queues) {
        samples.push_back({{queue.stage}, metric_number(queue.*value)});
    }
    return samples;
}

/// A generate job has no student.
template <class Read>
auto of_student(Read read) {
    return [read](const JobRun& run) -> MetricSamples {
        return run.progress.generates ? MetricSamples(std::vector<MetricSample>()) : MetricSamples(read(run));
    };
}

/// Of the newest step; empty before the first.
template <class Read>
auto of_step(Read read) {
    return [read](const JobRun& run) -> MetricSamples {
        const bool trained = !run.progress.generates && run.progress.step > 0;
        return trained ? MetricSamples(read(run)) : MetricSamples(std::vector<MetricSample>());
    };
}

template <class Number>
MetricSamples of_checkpoint(const JobRun& run, Number value) {
    // Empty without a checkpoint.
    return run.newest_checkpoint.time > 0 ? std::vector<MetricSample>{{{}, metric_number(value)}}
                                          : std::vector<MetricSample>();
}

}  // namespace

std::vector<MetricRow<JobRun>> training_metric_rows() {
    return {
        {"distilld_job_loss",
         "Loss of the newest step of an active job, in nats per token.",
         gauge,
         {"job_id"},
         of_step([](const JobRun& run) { return run.progress.loss; })},
        {"distilld_job_tokens_per_second",
         "Input positions per second that an active job trains on.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return run.progress.tokens_per_second; }},
        {"distilld_job_step",
         "Optimizer steps an active job has done.",
         gauge,
         {"job_id"},
         of_student([](const JobRun& run) { return metric_number(run.progress.step); })},
        {"distilld_job_stall_ratio",
         "Share of the run's time that the student waited for input.",
         gauge,
         {"job_id"},
         of_student([](const JobRun& run) { return run.progress.stall_fraction; })},
        {"distilld_job_kd_loss",
         "Of the loss, T² · KL divergence from the teacher, before it is weighted; 0 without a teacher.",
         gauge,
         {"job_id"},
         of_step([](const JobRun& run) { return run.progress.kd_loss; })},
        {"distilld_job_ce_loss",
         "Of the loss, cross entropy with the data, before it is weighted; 0 where it is not computed.",
         gauge,
         {"job_id"},
         of_step([](const JobRun& run) { return run.progress.ce_loss; })},
        {"distilld_job_eval_loss",
         "Newest held-out loss of an active job, in nats per token.",
         gauge,
         {"job_id"},
         of_evaluation([](const EvaluationEvent& newest) { return std::optional(newest.loss); })},
        {"distilld_job_eval_kl",
         "Newest held-out KL divergence of an active job's student from its teacher, in nats per token.",
         gauge,
         {"job_id"},
         of_evaluation([](const EvaluationEvent& newest) { return newest.kl; })},
        {"distilld_job_eval_top1_agreement",
         "Share of an active job's held-out tokens whose most likely token is the teacher's, at the newest evaluation.",
         gauge,
         {"job_id"},
         of_evaluation([](const EvaluationEvent& newest) { return newest.top1_agreement; })},
        {"distilld_job_grad_norm",
         "Global norm of the newest step's gradient, before clipping.",
         gauge,
         {"job_id"},
         of_step([](const JobRun& run) { return run.progress.grad_norm; })},
        {"distilld_job_learning_rate",
         "Learning rate of the newest step.",
         gauge,
         {"job_id"},
         of_step([](const JobRun& run) { return run.progress.learning_rate; })},
        {"distilld_job_last_step_timestamp_seconds",
         "Unix time at which the newest step of the run was reported.",
         gauge,
         {"job_id"},
         last_step_time},
        {"distilld_job_bottleneck",
         "1 for the stage that sets the pace of an active job, 0 for the others.",
         gauge,
         {"job_id", "stage"},
         bottleneck},
        {"distilld_stage_queue_items",
         "Items that wait in front of a stage of an active job.",
         gauge,
         {"job_id", "stage"},
         [](const JobRun& run) { return queues(run, &StageQueue::items); }},
        {"distilld_stage_queue_capacity_items",
         "Limit of items that wait in front of a stage of an active job.",
         gauge,
         {"job_id", "stage"},
         [](const JobRun& run) { return queues(run, &StageQueue::capacity); }},
        {"distilld_job_checkpoint_step",
         "Step of the newest checkpoint of an active job.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return of_checkpoint(run, run.newest_checkpoint.step); }},
        {"distilld_job_checkpoint_timestamp_seconds",
         "Unix time at which the newest checkpoint of an active job was written.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return of_checkpoint(run, run.newest_checkpoint.time); }},
        {"distilld_job_checkpoint_bytes",
         "Size of the newest checkpoint of an active job.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return of_checkpoint(run, run.newest_checkpoint.bytes); }},
        {"distilld_step_duration_seconds",
         "Time from the end of one optimizer step to the end of the next.",
         histogram,
         {"job_id"},
         step_durations},
        {"distilld_checkpoint_duration_seconds",
         "Time from copying a checkpoint until it is on the disk, including waits for space.",
         histogram,
         {"job_id"},
         checkpoint_durations},
        {"distilld_job_tokens_total",
         "Input positions that an active job has trained on.",
         counter,
         {"job_id"},
         of_student([](const JobRun& run) { return metric_number(run.progress.tokens); })},
        {"distilld_job_padding_tokens_total",
         "Padding positions of micro-batches that an active job's student has computed.",
         counter,
         {"job_id"},
         of_student([](const JobRun& run) { return metric_number(run.progress.padding_tokens); })},
        {"distilld_steps_total",
         "Optimizer steps done by all jobs.",
         counter,
         {},
         [](const JobRun& run) { return run.progress.generates ? 0 : steps_done(run); }},
        {"distilld_tokens_total",
         "Input positions: trained on by students, answered for by teachers.",
         counter,
         {"role"},
         tokens_by_role},
        {"distilld_nonfinite_steps_total",
         "Steps skipped because a gradient was not finite.",
         counter,
         {},
         [](const JobRun& run) { return metric_number(run.progress.nonfinite_steps); }},
        {"distilld_stage_busy_seconds_total", "Time a stage spent at work.", counter, {"stage"}, busy_by_stage},
        {"distilld_stage_wait_seconds_total",
         "Time a stage waited for its input, or for space at its output.",
         counter,
         {"reason", "stage"},
         waits_by_stage},
        {"distilld_overlap_seconds_total",
         "Teacher time during which the student did not wait.",
         counter,
         {},
         hidden_seconds},
        {"distilld_checkpoints_total",
         "Checkpoints written by all jobs.",
         counter,
         {},
         [](const JobRun& run) { return metric_number(run.checkpoints.count); }},
        {"distilld_checkpoint_written_bytes_total",
         "Bytes of the checkpoints written by all jobs.",
         counter,
         {},
         [](const JobRun& run) { return metric_number(run.checkpoints.bytes); }},
    };
}

}  // namespace distilld

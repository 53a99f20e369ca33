#include <cmath>
#include <string>
#include <vector>

#include "pipeline/core/stage.hpp"
#include "server/jobs/metrics/metric_row_parts.hpp"

namespace distilld {
namespace {

using enum MetricType;

MetricSamples tokens_by_role(const JobRun& run) {
    const auto answered = run.progress.fetch.completed * run.micro_batch_tokens;
    const auto trained = run.progress.generates ? 0 : run.progress.tokens;
    return std::vector<MetricSample>{{{"student"}, trained}, {{"teacher"}, answered}};
}

double steps_done(const JobRun& run) {
    return run.progress.generates ? 0.0 : static_cast<double>(run.progress.step) - static_cast<double>(run.first_step);
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

MetricSamples replicas(const JobRun& run) {
    return run.replicas > 0 ? MetricSamples(run.replicas) : MetricSamples();
}

MetricSamples ranks(const JobRun& run) {
    return run.ranks > 0 ? MetricSamples(run.ranks) : MetricSamples();
}

MetricSamples tokens_by_rank(const JobRun& run) {
    std::vector<MetricSample> samples;
    for (const RankCounters& rank : run.progress.ranks) {
        samples.push_back({{std::to_string(rank.rank)}, rank.tokens});
    }
    return samples;
}

MetricSamples waits_by_rank(const JobRun& run) {
    std::vector<MetricSample> samples;
    for (const RankCounters& rank : run.progress.ranks) {
        samples.push_back({{std::to_string(rank.rank), "input"}, rank.wait_input_seconds});
        samples.push_back({{std::to_string(rank.rank), "ranks"}, rank.wait_ranks_seconds});
    }
    return samples;
}

MetricSamples last_step_time(const JobRun& run) {
    return run.last_step_time > 0 ? MetricSamples(run.last_step_time) : MetricSamples();
}

MetricSamples bottleneck(const JobRun& run) {
    std::vector<MetricSample> samples;
    for (const auto& stage : run.progress.stages) {
        samples.push_back({{stage.stage}, stage.stage == run.progress.bottleneck});
    }
    return samples;
}

auto of_queues(std::uint64_t StageQueue::* value) {
    return [value](const JobRun& run) {
        std::vector<MetricSample> samples;
        for (const auto& queue : run.progress.measures.queues) {
            samples.push_back({{queue.stage}, queue.*value});
        }
        return samples;
    };
}

template <class Value>
auto of_evaluation(Value EvaluationEvent::* value) {
    return
        [value](const JobRun& run) { return run.evaluation ? MetricSamples(*run.evaluation.*value) : MetricSamples(); };
}

MetricSamples figures(const JobRun& run) {
    std::vector<MetricSample> samples;
    for (const auto& [name, value] : run.figures.figures) {
        samples.push_back({{name}, value});
    }
    return samples;
}

MetricSamples eval_programs(const JobRun& run) {
    std::vector<MetricSample> samples;
    for (const auto& [result, count] : run.eval_programs) {
        samples.push_back({{result}, count});
    }
    return samples;
}

template <class Number>
auto of_progress(Number ProgressEvent::* value) {
    return [value](const JobRun& run) { return run.progress.*value; };
}

/// A generate job has no student.
template <class Number>
auto of_student(Number ProgressEvent::* value) {
    return [value](const JobRun& run) {
        return run.progress.generates ? MetricSamples() : MetricSamples(run.progress.*value);
    };
}

/// Of the newest step; empty before the first.
auto of_step(double ProgressEvent::* value) {
    return [value](const JobRun& run) {
        const bool trained = !run.progress.generates && run.progress.step > 0;
        return trained ? MetricSamples(run.progress.*value) : MetricSamples();
    };
}

/// Empty without a checkpoint.
template <class Number>
auto of_checkpoint(Number NewestCheckpoint::* value) {
    return [value](const JobRun& run) {
        return run.newest_checkpoint.time > 0 ? MetricSamples(run.newest_checkpoint.*value) : MetricSamples();
    };
}

}  // namespace

std::vector<MetricRow<JobRun>> training_metric_rows() {
    using Row = MetricRow<JobRun>;
    return {
        Row("distilld_job_loss",
            "Loss of the newest step of an active job, in nats per token, or per sample of tensors.", gauge, {"job_id"},
            of_step(&ProgressEvent::loss)),
        Row("distilld_job_tokens_per_second",
            "Input positions, or samples of tensors, per second that an active job trains on.", gauge, {"job_id"},
            of_progress(&ProgressEvent::tokens_per_second)),
        Row("distilld_job_step", "Optimizer steps an active job has done.", gauge, {"job_id"},
            of_student(&ProgressEvent::step)),
        Row("distilld_job_stall_ratio", "Share of the run's time that the student waited for input.", gauge, {"job_id"},
            of_student(&ProgressEvent::stall_fraction)),
        Row("distilld_job_kd_loss",
            "Of the loss, T² · KL divergence from the teacher, before it is weighted; 0 without a teacher.", gauge,
            {"job_id"}, of_step(&ProgressEvent::kd_loss)),
        Row("distilld_job_ce_loss",
            "Of the loss, cross entropy with the data, before it is weighted; 0 where it is not computed.", gauge,
            {"job_id"}, of_step(&ProgressEvent::ce_loss)),
        Row("distilld_job_eval_loss",
            "Newest held-out loss of an active job, in nats per token, or per sample of tensors.", gauge, {"job_id"},
            of_evaluation(&EvaluationEvent::loss)),
        Row("distilld_job_eval_kl",
            "Newest held-out KL divergence of an active job's student from its teacher, in nats per token.", gauge,
            {"job_id"}, of_evaluation(&EvaluationEvent::kl)),
        Row("distilld_job_eval_top1_agreement",
            "Share of an active job's held-out tokens whose most likely token is the teacher's, at the newest "
            "evaluation.",
            gauge, {"job_id"}, of_evaluation(&EvaluationEvent::top1_agreement)),
        Row("distilld_job_eval_acceptance_rate",
            "Share of the tokens that an active job's student drafts which its teacher would accept, at the newest "
            "evaluation; a lower bound with top-k answers.",
            gauge, {"job_id"}, of_evaluation(&EvaluationEvent::acceptance_rate)),
        Row("distilld_job_figure", "Figure that eval.command has printed at its newest run for an active job.", gauge,
            {"figure", "job_id"}, figures),
        Row("distilld_eval_commands_total", "Runs of eval.command that printed figures, or failed.", counter,
            {"result"}, eval_programs),
        Row("distilld_job_grad_norm", "Global norm of the newest step's gradient, before clipping.", gauge, {"job_id"},
            of_step(&ProgressEvent::grad_norm)),
        Row("distilld_job_replicas", "Micro-batches that a job trains at once.", gauge, {"job_id"}, replicas),
        Row("distilld_job_ranks", "Workers that train a job together.", gauge, {"job_id"}, ranks),
        Row("distilld_job_learning_rate", "Learning rate of the newest step.", gauge, {"job_id"},
            of_step(&ProgressEvent::learning_rate)),
        Row("distilld_job_last_step_timestamp_seconds", "Unix time at which the newest step of the run was reported.",
            gauge, {"job_id"}, last_step_time),
        Row("distilld_job_bottleneck", "1 for the stage that sets the pace of an active job, 0 for the others.", gauge,
            {"job_id", "stage"}, bottleneck),
        Row("distilld_stage_queue_items", "Items that wait in front of a stage of an active job.", gauge,
            {"job_id", "stage"}, of_queues(&StageQueue::items)),
        Row("distilld_stage_queue_capacity_items", "Limit of items that wait in front of a stage of an active job.",
            gauge, {"job_id", "stage"}, of_queues(&StageQueue::capacity)),
        Row("distilld_job_checkpoint_step", "Step of the newest checkpoint of an active job.", gauge, {"job_id"},
            of_checkpoint(&NewestCheckpoint::step)),
        Row("distilld_job_checkpoint_timestamp_seconds",
            "Unix time at which the newest checkpoint of an active job was written.", gauge, {"job_id"},
            of_checkpoint(&NewestCheckpoint::time)),
        Row("distilld_job_checkpoint_bytes", "Size of the newest checkpoint of an active job.", gauge, {"job_id"},
            of_checkpoint(&NewestCheckpoint::bytes)),
        Row("distilld_step_duration_seconds", "Time from the end of one optimizer step to the end of the next.",
            histogram, {"job_id"}, [](const JobRun& run) { return histogram_of(run.progress.durations.steps); }),
        Row("distilld_checkpoint_duration_seconds",
            "Time from copying a checkpoint until it is on the disk, including waits for space.", histogram, {"job_id"},
            [](const JobRun& run) { return histogram_of(run.checkpoints.seconds); }),
        Row("distilld_job_tokens_total", "Input positions, or samples of tensors, that an active job has trained on.",
            counter, {"job_id"}, of_student(&ProgressEvent::tokens)),
        Row("distilld_job_padding_tokens_total",
            "Padding positions of micro-batches that an active job's student has computed.", counter, {"job_id"},
            of_student(&ProgressEvent::padding_tokens)),
        Row("distilld_job_rank_tokens_total",
            "Input positions that a rank has trained on; of active jobs with several.", counter, {"job_id", "rank"},
            tokens_by_rank),
        Row("distilld_job_rank_wait_seconds_total",
            "Time a rank waited for its input, or at the end of a step for the other ranks; of active jobs with "
            "several.",
            counter, {"job_id", "rank", "reason"}, waits_by_rank),
        Row("distilld_steps_total", "Optimizer steps done by all jobs.", counter, steps_done),
        Row("distilld_tokens_total",
            "Input positions, or samples of tensors: trained on by students, answered for by teachers.", counter,
            {"role"}, tokens_by_role),
        Row("distilld_nonfinite_steps_total", "Steps skipped because a gradient was not finite.", counter,
            of_progress(&ProgressEvent::nonfinite_steps)),
        Row("distilld_stage_busy_seconds_total", "Time a stage spent at work.", counter, {"stage"}, busy_by_stage),
        Row("distilld_stage_wait_seconds_total", "Time a stage waited for its input, or for space at its output.",
            counter, {"reason", "stage"}, waits_by_stage),
        Row("distilld_overlap_seconds_total", "Teacher time during which the student did not wait.", counter,
            hidden_seconds),
        Row("distilld_checkpoints_total", "Checkpoints written by all jobs.", counter,
            [](const JobRun& run) { return run.checkpoints.count; }),
        Row("distilld_checkpoint_written_bytes_total", "Bytes of the checkpoints written by all jobs.", counter,
            [](const JobRun& run) { return run.checkpoints.bytes; }),
    };
}

}  // namespace distilld

"""The dashboard of one job: headings, and the panels below each. See panels.py."""

import panels
from panels import figure, heat_map, plot

# An endpoint shares the job's limit, which `max_concurrent: "auto"` keeps far below the endpoint's own.
_JOB_LIMIT = "on (job_id) group_left () distilld_job_teacher_concurrency_limit{JOB}"
_ENDPOINT_LIMIT = (
    f"(distilld_teacher_endpoint_limit{{JOB}} <= {_JOB_LIMIT})"
    f" or (0 * distilld_teacher_endpoint_limit{{JOB}} + {_JOB_LIMIT})"
)
_ANSWER_TOKENS = "sum by (job_id, le) (rate(distilld_job_rollout_answer_tokens_bucket{JOB}[RATE]))"

JOB = (
    (
        "Progress",
        (
            figure("Step", "short", "Optimizer steps done.", ("distilld_job_step{JOB}", "{{job_id}}")),
            figure(
                "Training loss now",
                panels.NATS,
                "Of the newest step, in nats per token, or per sample of tensors: KD from the teacher, cross entropy "
                "with the data, or a mix of the two by training.kd_ratio (docs/losses.md).",
                ("distilld_job_loss{JOB}", "{{job_id}}"),
            ),
            figure(
                "Throughput now",
                "short",
                "Tokens, or samples of tensors, per second that the job trains on, or stores answers for.",
                ("distilld_job_tokens_per_second{JOB}", "{{job_id}}"),
            ),
            figure(
                "Stall of the run",
                "percentunit",
                "Share of the whole run's time that the student waited for input.",
                ("distilld_job_stall_ratio{JOB}", "{{job_id}}"),
                warn_above=0.2,
            ),
            figure(
                "Open endpoints now",
                "short",
                "Teacher endpoints with an open circuit breaker.",
                ("distilld_job_teacher_open_endpoints{JOB}", "{{job_id}}"),
                warn_above=1,
            ),
            figure(
                "Jobs that wait",
                "short",
                "Jobs of the service that wait for a teacher, space on the disk or a worker's restart. See "
                "status_reason of GET /v1/jobs/{id}.",
                ("sum(distilld_jobs_waiting{INSTANCE}) or vector(0)", "waiting"),
                warn_above=1,
            ),
            plot(
                "Training loss",
                panels.NATS,
                "Of each step, in nats per token, or per sample of tensors: KD from the teacher, cross entropy with "
                "the data, or a mix of the two by training.kd_ratio (docs/losses.md).",
                ("distilld_job_loss{JOB}", "{{job_id}}"),
                width=12,
            ),
            plot(
                "Throughput",
                "short",
                "Tokens, or samples of tensors, per second that the job trains on, or stores answers for.",
                ("distilld_job_tokens_per_second{JOB}", "{{job_id}}"),
                width=12,
            ),
            plot(
                "Steps",
                "short",
                "Optimizer steps per second. It falls to 0 while the job waits.",
                ("deriv(distilld_job_step{JOB}[RATE])", "{{job_id}}"),
            ),
            plot(
                "Stall ratio",
                "percentunit",
                "Share of the run's time, since it began, that the student waited for input.",
                ("distilld_job_stall_ratio{JOB}", "{{job_id}}"),
                warn_above=0.2,
            ),
            plot(
                "Non-finite steps",
                "short",
                "Steps that jobs of the service skipped because a gradient was not finite.",
                ("sum(increase(distilld_nonfinite_steps_total{INSTANCE}[RATE]))", "skipped"),
            ),
            plot(
                "Parts of the loss",
                panels.NATS,
                "Of each step, in nats per token, or per sample of tensors, and not weighted: KD, the divergence from "
                "the teacher; cross entropy with the data; and the newest held-out cross entropy, where there is a "
                "held-out set.",
                ("distilld_job_kd_loss{JOB}", "KD"),
                ("distilld_job_ce_loss{JOB}", "cross entropy"),
                ("distilld_job_eval_loss{JOB}", "held-out cross entropy"),
            ),
            plot(
                "Held-out comparison with the teacher",
                "short",
                "At each evaluation: divergence of the student from the teacher in nats per token, the share of "
                "tokens whose most likely token is the teacher's, and the share of the student's drafted tokens that "
                "the teacher would accept.",
                ("distilld_job_eval_kl{JOB}", "KL"),
                ("distilld_job_eval_top1_agreement{JOB}", "top-1 agreement"),
                ("distilld_job_eval_acceptance_rate{JOB}", "acceptance as a draft"),
            ),
            plot(
                "Figures of eval.command",
                "short",
                "What the program of eval.command printed about the student at its newest run, by name.",
                ("distilld_job_figure{JOB}", "{{figure}}"),
            ),
            plot(
                "Answers of the student",
                "short",
                "With rollouts: the share of the student's answers that ended at rollout.max_tokens, the entropy of "
                "the tokens that it drew, and with training.beta 1 the reverse KL of the newest step, both in nats.",
                ("distilld_job_rollout_cut_ratio{JOB}", "share cut"),
                ("distilld_job_rollout_entropy_nats{JOB}", "entropy"),
                ("distilld_job_rollout_reverse_kl_nats{JOB}", "reverse KL"),
            ),
            plot(
                "Length of the student's answers",
                "short",
                "With rollouts: tokens of an answer. Half of the answers have at most the median, nine of ten at most "
                "the 90th percentile, and the mean is of the whole run.",
                (f"histogram_quantile(0.5, {_ANSWER_TOKENS})", "median"),
                (f"histogram_quantile(0.9, {_ANSWER_TOKENS})", "90th percentile"),
                ("distilld_job_rollout_mean_tokens{JOB}", "mean"),
            ),
            plot(
                "Tokens that the student writes",
                "short",
                "With rollouts: answers and tokens per second that the student writes, and tokens that the teacher "
                "grades and that the student trains on (both with prompts).",
                ("rate(distilld_job_rollout_answers_total{JOB}[RATE])", "answers"),
                ("rate(distilld_job_rollout_tokens_total{JOB}[RATE])", "tokens written"),
                ("sum by (job_id) (rate(distilld_teacher_endpoint_tokens_total{JOB}[RATE]))", "tokens graded"),
                ("rate(distilld_job_tokens_total{JOB}[RATE])", "tokens trained on"),
            ),
            plot(
                "Fit of a teacher with another tokenizer",
                "percentunit",
                "Share of the student's positions at which the teacher has read the same bytes, and of its probability "
                "there that is on tokens of the student.",
                ("distilld_job_teacher_aligned_ratio{JOB}", "positions"),
                ("distilld_job_teacher_mapped_mass_ratio{JOB}", "probability"),
            ),
            plot(
                "Padding",
                "percentunit",
                "Share of padding in the positions that the student computes. If it is more than a few percent, "
                "try another packing.",
                (
                    "rate(distilld_job_padding_tokens_total{JOB}[RATE]) / "
                    "(rate(distilld_job_tokens_total{JOB}[RATE]) + rate(distilld_job_padding_tokens_total{JOB}[RATE]))",
                    "{{job_id}}",
                ),
                warn_above=0.05,
            ),
            plot(
                "Gradient norm",
                "short",
                "Global norm before clipping.",
                ("distilld_job_grad_norm{JOB}", "{{job_id}}"),
            ),
            plot(
                "Learning rate",
                "short",
                "Of each step.",
                ("distilld_job_learning_rate{JOB}", "{{job_id}}"),
            ),
            plot(
                "Since the newest step",
                "s",
                "It grows while the job waits or evaluates.",
                ("time() - distilld_job_last_step_timestamp_seconds{JOB}", "{{job_id}}"),
            ),
            heat_map(
                "Step time",
                "s",
                "From the end of one optimizer step to the end of the next, evaluations in between included.",
                "sum by (le) (rate(distilld_step_duration_seconds_bucket{JOB}[RATE]))",
            ),
        ),
    ),
    (
        "Teacher of the job",
        (
            plot(
                "In flight",
                "short",
                "Requests in flight, and their limit.",
                ("distilld_job_teacher_in_flight{JOB}", "in flight"),
                ("distilld_job_teacher_concurrency_limit{JOB}", "limit"),
            ),
            plot(
                "Window",
                "short",
                "Limit of micro-batches requested ahead of training, and those already answered. With an empty "
                "buffer, the student waits.",
                ("distilld_job_prefetch_window_items{JOB}", "window"),
                ("distilld_job_prefetch_buffer_items{JOB}", "buffered"),
            ),
            plot(
                "Open endpoints",
                "short",
                "Endpoints with an open circuit breaker.",
                ("distilld_job_teacher_open_endpoints{JOB}", "{{job_id}}"),
            ),
            heat_map(
                "Latency",
                "s",
                "From a request to the last byte of its answer, of requests that succeeded.",
                'sum by (le) (rate(distilld_teacher_request_duration_seconds_bucket{JOB, outcome="success"}[RATE]))',
            ),
            plot(
                "Requests by outcome",
                "reqps",
                "Requests that ended, by endpoint; cancelled are those overtaken by a hedge.",
                (
                    "sum by (endpoint, outcome) (rate(distilld_teacher_request_duration_seconds_count{JOB}[RATE]))",
                    "{{endpoint}} {{outcome}}",
                ),
            ),
            plot(
                "Limits of the endpoints",
                "short",
                "Limit of requests in flight at each endpoint, which has a limit of its own and shares the job's, "
                "and how many are.",
                (_ENDPOINT_LIMIT, "limit {{endpoint}}"),
                ("distilld_teacher_endpoint_in_flight{JOB}", "in flight {{endpoint}}"),
            ),
            plot(
                "Store of answers",
                "short",
                "Rows of the dataset that the store has answers for, those in sealed shards, and those wanted.",
                ("distilld_teacher_store_rows{JOB}", "{{state}}"),
            ),
            plot(
                "Bytes in the store of answers",
                "bytes",
                "Size of its sealed shards.",
                ("distilld_teacher_store_sealed_bytes{JOB}", "{{job_id}}"),
            ),
            plot(
                "Rows generated",
                "short",
                "Rows per second that generate jobs of the service write into stores.",
                ("sum(rate(distilld_generate_rows_total{INSTANCE}[RATE])) or vector(0)", "rows per second"),
            ),
        ),
    ),
    (
        "Ranks of the job",
        (
            plot(
                "Waiting ranks",
                "percentunit",
                "Share of the time that a rank waits for its input, and for the other ranks at the end of a step. The "
                "slowest rank waits least for the others.",
                ("rate(distilld_job_rank_wait_seconds_total{JOB}[RATE])", "rank {{rank}} for {{reason}}"),
            ),
            plot(
                "Tokens or samples of the ranks",
                "short",
                "Input positions per second that each rank trains on.",
                ("rate(distilld_job_rank_tokens_total{JOB}[RATE])", "rank {{rank}}"),
            ),
            plot("Ranks", "short", "Workers that train the job together.", ("distilld_job_ranks{JOB}", "{{job_id}}")),
        ),
    ),
    (
        "Several teachers of the job, by name",
        (
            plot(
                "Starved by a teacher",
                "percentunit",
                "Share of the time that the student waits for rows of this teacher. A teacher near 100 % holds up "
                "the job and the other teachers.",
                ("rate(distilld_job_teacher_wait_seconds_total{JOB}[RATE])", "{{teacher}}"),
            ),
            plot(
                "Tokens or samples of the teachers",
                "short",
                "Input positions per second that each teacher answers for, and requests that fail.",
                ("rate(distilld_job_several_teachers_tokens_total{JOB}[RATE])", "{{teacher}}"),
                ("rate(distilld_job_several_teachers_failures_total{JOB}[RATE])", "failures {{teacher}}"),
            ),
            plot(
                "Windows of the teachers",
                "short",
                "Limit of micro-batches requested from a teacher, those answered, and requests in flight.",
                ("distilld_job_several_teachers_window_items{JOB}", "window {{teacher}}"),
                ("distilld_job_several_teachers_buffer_items{JOB}", "answered {{teacher}}"),
                ("distilld_job_several_teachers_in_flight{JOB}", "in flight {{teacher}}"),
            ),
        ),
    ),
    (
        "Teacher of the job, by endpoint",
        (
            plot(
                "Tokens or samples of the endpoints",
                "short",
                "Input positions per second that each endpoint answers for.",
                ("rate(distilld_teacher_endpoint_tokens_total{JOB}[RATE])", "{{endpoint}}"),
            ),
            plot(
                "Bytes of the endpoints",
                "Bps",
                "Over the wire: answers, unused and partial ones included, and requests.",
                ("rate(distilld_teacher_endpoint_received_bytes_total{JOB}[RATE])", "from {{endpoint}}"),
                ("rate(distilld_teacher_endpoint_sent_bytes_total{JOB}[RATE])", "to {{endpoint}}"),
            ),
            plot(
                "Retries and hedges",
                "reqps",
                "Requests sent again after a failure; second requests for answers that were slow, and how many of them "
                "were answered first.",
                ("rate(distilld_teacher_endpoint_retries_total{JOB}[RATE])", "retries {{endpoint}}"),
                ("rate(distilld_teacher_endpoint_hedges_total{JOB}[RATE])", "hedges {{endpoint}}"),
                ("rate(distilld_teacher_endpoint_hedge_wins_total{JOB}[RATE])", "hedges first {{endpoint}}"),
            ),
            plot(
                "Openings by endpoint",
                "short",
                "Times that the circuit breaker of an endpoint opened.",
                ("increase(distilld_teacher_endpoint_breaker_openings_total{JOB}[RATE])", "{{endpoint}}"),
            ),
            plot(
                "Endpoints left out",
                "short",
                "1 while the circuit breaker of an endpoint is open.",
                ("distilld_teacher_endpoint_open{JOB}", "{{endpoint}}"),
            ),
        ),
    ),
    (
        "Pipeline of the job",
        (
            plot(
                "Who sets the pace",
                "percentunit",
                "Share of the time that a stage was the bottleneck. Ideally, it is the student.",
                ("avg_over_time(distilld_job_bottleneck{JOB}[RATE])", "{{stage}}"),
                width=12,
            ),
            plot(
                "Between the stages",
                "percentunit",
                "Fill level of the queue in front of each stage. If the student's is full, nothing holds it up. An "
                "empty queue waits for the stage before it; the bottleneck is in front of the first empty one.",
                ("distilld_stage_queue_items{JOB} / distilld_stage_queue_capacity_items{JOB}", "before {{stage}}"),
                width=12,
            ),
        ),
    ),
    (
        "Checkpoints and disks of the job",
        (
            figure(
                "Newest checkpoint",
                "short",
                "Its step.",
                ("distilld_job_checkpoint_step{JOB}", "{{job_id}}"),
            ),
            figure(
                "Its size",
                "bytes",
                "Of all its files.",
                ("distilld_job_checkpoint_bytes{JOB}", "{{job_id}}"),
            ),
            figure(
                "Its age",
                "s",
                "A worker that dies loses what was trained since.",
                ("time() - distilld_job_checkpoint_timestamp_seconds{JOB}", "{{job_id}}"),
            ),
            heat_map(
                "Time to write",
                "s",
                "From copying a checkpoint until it is on the disk. The next steps run meanwhile.",
                "sum by (le) (rate(distilld_checkpoint_duration_seconds_bucket{JOB}[RATE]))",
                width=12,
            ),
            plot(
                "Free space",
                "bytes",
                "On the disks that the job writes to.",
                ("distilld_disk_free_bytes{JOB}", "{{of}}"),
                width=12,
            ),
        ),
    ),
    (
        "Worker of the job",
        (
            plot(
                "Memory",
                "bytes",
                "Resident memory of the worker's process, and its peak.",
                ("distilld_worker_resident_memory_bytes{JOB}", "resident"),
                ("distilld_worker_peak_resident_memory_bytes{JOB}", "peak"),
            ),
            plot(
                "Device memory",
                "bytes",
                "Allocated, reserved (allocated and cached), the peak of allocated, and the total of the device. On "
                "the CPU: the worker's resident memory, and the machine's memory.",
                ("distilld_device_memory_bytes{JOB}", "{{device}} {{kind}}"),
            ),
            plot("Open files", "short", "Of the worker.", ("distilld_worker_open_fds{JOB}", "{{job_id}}")),
            plot(
                "Replicas",
                "short",
                "Micro-batches that train at once, each on one thread; 1: one after the other.",
                ("distilld_job_replicas{JOB}", "{{job_id}}"),
            ),
        ),
    ),
    ("Pipeline, all jobs of the service", panels.PIPELINE),
    ("Teachers, all jobs of the service", panels.TEACHER_CLIENT),
)

"""The dashboard of one job: headings, and the panels below each. See panels.py."""

import panels
from panels import figure, heat_map, plot

JOB = (
    (
        "Progress",
        (
            figure("Step", "short", "Optimizer steps done.", ("distilld_job_step{JOB}", "{{job_id}}")),
            figure(
                "Loss now",
                "short",
                "Loss of the newest step, in nats a token.",
                ("distilld_job_loss{JOB}", "{{job_id}}"),
            ),
            figure(
                "Throughput now",
                "short",
                "Tokens a second that the job trains on.",
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
                "Teacher endpoints that get nothing but a probe now and then, because they failed.",
                ("distilld_job_teacher_open_endpoints{JOB}", "{{job_id}}"),
                warn_above=1,
            ),
            figure(
                "Jobs that wait",
                "short",
                "Jobs of the service that wait for a teacher, space on the disk or a worker's restart. Which, and for "
                "what: status_reason of GET /v1/jobs/{id}.",
                ("sum(distilld_jobs_waiting{INSTANCE}) or vector(0)", "waiting"),
                warn_above=1,
            ),
            plot("Loss", "short", "Of each step, in nats a token.", ("distilld_job_loss{JOB}", "{{job_id}}"), width=12),
            plot(
                "Throughput",
                "short",
                "Tokens a second that the job trains on.",
                ("distilld_job_tokens_per_second{JOB}", "{{job_id}}"),
                width=12,
            ),
            plot(
                "Steps",
                "short",
                "Optimizer steps a second. It falls to 0 while the job waits.",
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
                "Requests under way, and how many may be.",
                ("distilld_job_teacher_in_flight{JOB}", "in flight"),
                ("distilld_job_teacher_concurrency_limit{JOB}", "limit"),
            ),
            plot(
                "Window",
                "short",
                "Micro-batches that may be asked for and not yet trained on, and those that are answered already. A "
                "buffer that is empty is a student that waits.",
                ("distilld_job_prefetch_window_items{JOB}", "window"),
                ("distilld_job_prefetch_buffer_items{JOB}", "buffered"),
            ),
            plot(
                "Open endpoints",
                "short",
                "Endpoints that get nothing but a probe now and then, because they failed.",
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
                "Requests that ended, by endpoint; cancelled are those that a hedge beat.",
                (
                    "sum by (endpoint, outcome) (rate(distilld_teacher_request_duration_seconds_count{JOB}[RATE]))",
                    "{{endpoint}} {{outcome}}",
                ),
            ),
            plot(
                "Limits of the endpoints",
                "short",
                "Requests that may be under way at each endpoint, and how many are.",
                ("distilld_teacher_endpoint_limit{JOB}", "limit {{endpoint}}"),
                ("distilld_teacher_endpoint_in_flight{JOB}", "in flight {{endpoint}}"),
            ),
        ),
    ),
    ("Pipeline, all jobs of the service", panels.PIPELINE),
    ("Teachers, all jobs of the service", panels.TEACHER_CLIENT),
)

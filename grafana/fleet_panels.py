"""The dashboard of all services and teachers: headings, and the panels below each. See panels.py."""

import panels
from panels import bars, figure, heat_map, plot

FLEET = (
    (
        "Jobs",
        (
            figure(
                "Services",
                "short",
                "Services that answer their scrapes.",
                ("count(distilld_build_info{INSTANCE})", "services"),
            ),
            figure("Running", "short", "Jobs that run.", ('sum(distilld_jobs{INSTANCE, state="running"})', "running")),
            figure(
                "Queued",
                "short",
                "Jobs that wait for a slot.",
                ('sum(distilld_jobs{INSTANCE, state="queued"})', "queued"),
            ),
            figure(
                "Paused",
                "short",
                "Jobs that a user has paused, or that are on their way there.",
                ('sum(distilld_jobs{INSTANCE, state=~"pausing|paused"})', "paused"),
            ),
            figure(
                "Waiting",
                "short",
                "Jobs that wait for a teacher, the first shard of a store, space on the disk, or a worker's restart.",
                ("sum(distilld_jobs_waiting{INSTANCE}) or vector(0)", "waiting"),
                warn_above=1,
            ),
            figure(
                "Job store",
                "short",
                "Whether the job store of every service can be written. While it cannot, jobs continue, "
                "and their events are kept in memory.",
                ("min(distilld_store_writable{INSTANCE})", "writable"),
                words=((1, "writable", "green"), (0, "not writable", "red")),
            ),
            figure(
                "Non-finite steps",
                "short",
                "Steps skipped because a gradient was not finite, in the time that is shown.",
                ("sum(increase(distilld_nonfinite_steps_total{INSTANCE}[$__range]))", "skipped"),
                warn_above=1,
            ),
            plot(
                "Jobs by state",
                "short",
                "Jobs in the store.",
                ("sum by (state) (distilld_jobs{INSTANCE})", "{{state}}"),
            ),
            plot(
                "Jobs that came to an end",
                "short",
                "By result.",
                ("sum by (result) (increase(distilld_jobs_finished_total{INSTANCE}[RATE]))", "{{result}}"),
            ),
            plot(
                "Jobs that wait, by reason",
                "short",
                "Nothing is shown while none waits. Each passes by itself when its reason does.",
                ("sum by (reason) (distilld_jobs_waiting{INSTANCE})", "{{reason}}"),
            ),
            plot(
                "Slots",
                "short",
                "Where jobs run, busy with one or free (distilld serve --slots). A queue beside free slots waits for "
                "something else.",
                ("sum by (state) (distilld_slots{INSTANCE})", "{{state}}"),
            ),
            plot(
                "Relays",
                "short",
                "On a cluster: relays of workers that are connected, and messages that wait for one that is not.",
                ("sum by (instance) (distilld_relays_connected{INSTANCE})", "{{instance}}, connected"),
                ("sum by (instance) (distilld_relay_unacknowledged_messages{INSTANCE})", "{{instance}}, messages"),
            ),
            plot(
                "Relays that connect again",
                "short",
                "On a cluster: after a break of the network or a restart of the service.",
                ("sum by (instance) (increase(distilld_relay_reconnects_total{INSTANCE}[RATE]))", "{{instance}}"),
            ),
            plot(
                "Attempts by node",
                "short",
                "Attempts of jobs that run on each machine.",
                ("sum by (node) (distilld_node_attempts{INSTANCE})", "{{node}}"),
            ),
            plot(
                "Nodes",
                "short",
                "Machines that run workers, by state (of Slurm, or this machine).",
                ("sum by (state) (distilld_nodes{INSTANCE})", "{{state}}"),
            ),
            plot(
                "Nodes with jobs",
                "short",
                "Machines that run jobs of the services, and the cores of all machines.",
                ("sum(distilld_nodes_with_jobs{INSTANCE})", "with jobs"),
                ("sum(distilld_node_cores{INSTANCE})", "cores"),
            ),
            plot(
                "Worker restarts",
                "short",
                "Workers that died and were started again from the newest checkpoint.",
                ("sum by (instance) (increase(distilld_worker_restarts_total{INSTANCE}[RATE]))", "{{instance}}"),
            ),
            plot(
                "Webhooks",
                "short",
                "Attempts to notify a receiver of the end of a job. Retried: the answer was not 2xx; repeated "
                "for a day; given up: the day is over, or the receiver answered 410.",
                ("sum by (result) (increase(distilld_webhook_deliveries_total{INSTANCE}[RATE]))", "{{result}}"),
            ),
            plot(
                "Restarts out of memory",
                "short",
                "Workers that ran out of memory and were started again with micro-batches of half as many rows.",
                ("sum by (instance) (increase(distilld_worker_oom_restarts_total{INSTANCE}[RATE]))", "{{instance}}"),
            ),
            heat_map(
                "Wait in the queue",
                "s",
                "From a job's submission to its first start.",
                "sum by (le) (increase(distilld_queue_wait_seconds_bucket{INSTANCE}[RATE]))",
            ),
            plot(
                "Free space",
                "percentunit",
                "Share of each disk that is written to: the data folder's (data), and those of the outputs and "
                "checkpoints of active jobs.",
                (
                    "min by (instance, of) (distilld_disk_free_bytes{INSTANCE} / distilld_disk_size_bytes{INSTANCE})",
                    "{{instance}}: {{of}}",
                ),
            ),
            plot(
                "Size of the job store",
                "bytes",
                "Jobs and their events.",
                ("distilld_store_size_bytes{INSTANCE}", "{{instance}}"),
            ),
            plot(
                "Checkpoints",
                "short",
                "Written by all jobs.",
                ("sum by (instance) (increase(distilld_checkpoints_total{INSTANCE}[RATE]))", "{{instance}}"),
            ),
            plot(
                "Bytes of checkpoints",
                "Bps",
                "Written by all jobs.",
                ("sum by (instance) (rate(distilld_checkpoint_written_bytes_total{INSTANCE}[RATE]))", "{{instance}}"),
            ),
            plot(
                "Unsaved events",
                "short",
                "Events of jobs that wait in memory for the job store to be writable.",
                ("distilld_store_unsaved_events{INSTANCE}", "{{instance}}"),
            ),
            plot(
                "Non-finite steps over time",
                "short",
                "Steps skipped because a gradient was not finite.",
                ("sum by (instance) (increase(distilld_nonfinite_steps_total{INSTANCE}[RATE]))", "{{instance}}"),
            ),
        ),
    ),
    (
        "Training",
        (
            plot(
                "Throughput",
                "short",
                "Tokens, or samples of tensors, per second: trained on by students, answered for by teachers.",
                ("sum by (role) (rate(distilld_tokens_total{INSTANCE}[RATE]))", "{{role}}"),
            ),
            plot(
                "Throughput by job",
                "short",
                "Tokens, or samples of tensors, per second that each active job trains on.",
                ("distilld_job_tokens_per_second{INSTANCE}", "{{job_id}}"),
            ),
            plot(
                "Steps",
                "short",
                "Optimizer steps per second.",
                ("sum by (instance) (rate(distilld_steps_total{INSTANCE}[RATE]))", "{{instance}}"),
            ),
            *panels.PIPELINE,
        ),
    ),
    (
        "Teachers, as the jobs see them",
        (
            *panels.TEACHER_CLIENT,
            plot(
                "Open endpoints",
                "short",
                "Endpoints with an open circuit breaker.",
                ("sum by (instance) (distilld_job_teacher_open_endpoints{INSTANCE})", "{{instance}}"),
            ),
            plot(
                "In flight",
                "short",
                "Requests in flight, and their limit.",
                ("sum by (instance) (distilld_job_teacher_in_flight{INSTANCE})", "{{instance}}"),
                ("sum by (instance) (distilld_job_teacher_concurrency_limit{INSTANCE})", "{{instance}}: limit"),
            ),
        ),
    ),
    (
        "Teacher servers (distilld teacher)",
        (
            plot(
                "Scoring requests",
                "reqps",
                "Requests answered, by protocol and status; and those abandoned before they were computed.",
                (
                    "sum by (protocol, code) (rate(distilld_teacher_server_requests_total{TEACHER}[RATE]))",
                    "{{protocol}} {{code}}",
                ),
                ("sum(rate(distilld_teacher_server_dropped_requests_total{TEACHER}[RATE]))", "dropped"),
            ),
            heat_map(
                "Latency",
                "s",
                "Time from a scoring request's header to the end of its answer.",
                "sum by (le) (rate(distilld_teacher_server_request_duration_seconds_bucket{TEACHER}[RATE]))",
            ),
            plot(
                "Tokens or samples scored",
                "short",
                "Input positions per second.",
                ("sum by (instance) (rate(distilld_teacher_server_tokens_total{TEACHER}[RATE]))", "{{instance}}"),
            ),
            plot(
                "Compute",
                "percentunit",
                "Share of the time that the compute thread is busy.",
                (
                    "sum by (instance) (rate(distilld_teacher_server_compute_seconds_total{TEACHER}[RATE]))",
                    "{{instance}}",
                ),
            ),
            plot(
                "Queue",
                "short",
                "Requests that wait for the compute thread.",
                ("distilld_teacher_server_queue_length{TEACHER}", "{{instance}}"),
            ),
            plot(
                "Wait for the compute thread",
                "s",
                "95th percentile.",
                (
                    "histogram_quantile(0.95, sum by (instance, le) "
                    "(rate(distilld_teacher_server_queue_wait_seconds_bucket{TEACHER}[RATE])))",
                    "{{instance}}",
                ),
            ),
            plot(
                "Batch size",
                "short",
                "Mean number of requests that the compute thread takes from the queue together.",
                (
                    "sum by (instance) (rate(distilld_teacher_server_batch_size_sum{TEACHER}[RATE])) / "
                    "sum by (instance) (rate(distilld_teacher_server_batch_size_count{TEACHER}[RATE]))",
                    "{{instance}}",
                ),
            ),
            plot(
                "Generated tokens",
                "short",
                "Tokens per second, and those of the prompts that were read for them.",
                (
                    "sum by (instance) (rate(distilld_teacher_server_generated_tokens_total{TEACHER}[RATE]))",
                    "{{instance}}",
                ),
                (
                    "sum by (instance) (rate(distilld_teacher_server_prompt_tokens_total{TEACHER}[RATE]))",
                    "{{instance}} prompts",
                ),
            ),
            plot(
                "Sequences",
                "short",
                "Answers that are generated, and that wait for room.",
                ("distilld_teacher_server_sequences_running{TEACHER}", "{{instance}}"),
                ("distilld_teacher_server_sequences_waiting{TEACHER}", "{{instance}} waiting"),
            ),
            bars(
                "Models",
                "short",
                "Models that are served.",
                (
                    "sum by (instance, model, dtype, device) (distilld_teacher_server_model_info{TEACHER})",
                    "{{instance}}: {{model}}, {{dtype}} on {{device}}",
                ),
            ),
        ),
    ),
    (
        "Service",
        (
            plot(
                "HTTP requests",
                "reqps",
                "Requests answered by the REST API.",
                (
                    "sum by (method, route, code) (rate(distilld_http_requests_total{INSTANCE}[RATE]))",
                    "{{method}} {{route}} {{code}}",
                ),
            ),
            plot(
                "HTTP latency",
                "s",
                "95th percentile. Event streams last as long as their readers stay.",
                (
                    "histogram_quantile(0.95, sum by (route, le) "
                    "(rate(distilld_http_request_duration_seconds_bucket{INSTANCE}[RATE])))",
                    "{{route}}",
                ),
            ),
            plot(
                "Resident memory",
                "bytes",
                "Of the service alone: workers have their own.",
                ("process_resident_memory_bytes{INSTANCE}", "{{instance}}"),
            ),
            plot(
                "CPU",
                "percentunit",
                "Of the service alone; 100 % is one core.",
                ("rate(process_cpu_seconds_total{INSTANCE}[RATE])", "{{instance}}"),
            ),
            plot(
                "Memory of the workers",
                "bytes",
                "Resident memory of the workers of all active jobs.",
                ("sum by (instance) (distilld_worker_resident_memory_bytes{INSTANCE})", "{{instance}}"),
            ),
            plot(
                "CPU of the workers",
                "percentunit",
                "Of the workers of all jobs; 100 % is one core.",
                ("sum by (instance) (rate(distilld_worker_cpu_seconds_total{INSTANCE}[RATE]))", "{{instance}}"),
            ),
            plot(
                "Records of sinks",
                "cps",
                "Records that jobs write to JSONL files, TensorBoard, MLflow and OpenTelemetry, and those lost.",
                ("sum by (sink) (rate(distilld_sink_written_total{INSTANCE}[RATE]))", "{{sink}}"),
                ("sum by (sink) (rate(distilld_sink_dropped_total{INSTANCE}[RATE]))", "{{sink}}, lost"),
            ),
            plot("Open files", "short", "Open file descriptors.", ("process_open_fds{INSTANCE}", "{{instance}}")),
            figure(
                "Up for",
                "s",
                "Since the service started.",
                ("time() - process_start_time_seconds{INSTANCE}", "{{instance}}"),
            ),
            figure(
                "Version",
                "short",
                "Services by version.",
                ("count by (version) (distilld_build_info{INSTANCE})", "{{version}}"),
                named=True,
            ),
        ),
    ),
)

"""What a panel is, and those that both dashboards show; the others are in fleet_panels.py and job_panels.py.

make_dashboards.py makes Grafana's JSON of them. To show a metric: a row in one of the three, then
`python3 grafana/make_dashboards.py`. In queries INSTANCE stands for the services and JOB for the job that are chosen at
the top of the dashboard, TEACHER for the teacher servers; RATE is the range that Grafana picks for rates.
"""

import dataclasses

NATS = "suffix: nats/token"  # a unit of our own, as Grafana takes one


@dataclasses.dataclass(frozen=True)
class Panel:
    title: str
    unit: str  # an id of Grafana's
    description: str
    queries: tuple  # of (PromQL, legend)
    kind: str = "timeseries"
    width: int = 8  # of the 24 columns of a dashboard
    words: tuple = ()  # of (value, text, colour): shown in place of the value
    warn_above: float | None = None  # yellow from here on
    named: bool = False  # a figure with its legend, which else is only shown beside others


def plot(title, unit, description, *queries, **options):
    """Lines over time."""
    return Panel(title, unit, description, queries, **options)


def figure(title, unit, description, *queries, **options):
    """The newest value, large."""
    return Panel(title, unit, description, queries, **{"kind": "stat", "width": 4, **options})


def bars(title, unit, description, *queries, **options):
    """The newest values, a bar each."""
    return Panel(title, unit, description, queries, **{"kind": "bargauge", **options})


def heat_map(title, unit, description, buckets, **options):
    """How a histogram's observations are spread, over time."""
    return Panel(title, unit, description, ((buckets, "{{le}}"),), **{"kind": "heatmap", **options})


# Stages are measured by service, over all its jobs: no metric has both a job and a stage.
_STAGE_TIME = (
    "(sum by (stage) (rate(distilld_stage_busy_seconds_total{INSTANCE}[RATE]))"
    " + sum by (stage) (rate(distilld_stage_wait_seconds_total{INSTANCE}[RATE])))"
)
# Not of planning: the teacher stage calls it and nobody counts its waits, so that it would always be at 100 %.
_BUSY_SHARE = 'sum by (stage) (rate(distilld_stage_busy_seconds_total{INSTANCE, stage!="plan"}[RATE])) / ' + _STAGE_TIME
_OF_STUDENT = (
    '(sum(rate(distilld_stage_busy_seconds_total{INSTANCE, stage="student"}[RATE]))'
    ' + sum(rate(distilld_stage_wait_seconds_total{INSTANCE, stage="student"}[RATE])))'
)

PIPELINE = (
    bars(
        "Bottleneck",
        "percentunit",
        "Share of its time that each stage is busy, over all jobs of the service. If the student is near 100 %, it is "
        "the bottleneck, as intended. Otherwise, it is the last of teacher, decode and staging that is near 100 %. "
        "The teacher works while any request is in flight.",
        (_BUSY_SHARE, "{{stage}}"),
    ),
    plot(
        "Stall",
        "percentunit",
        "Share of their time that the students waited for input, over all jobs of the service.",
        (
            'sum(rate(distilld_stage_wait_seconds_total{INSTANCE, reason="input", stage="student"}[RATE])) / '
            + _OF_STUDENT,
            "stall",
        ),
        warn_above=0.2,
    ),
    plot(
        "Overlap",
        "percentunit",
        "Share of the teachers' time during which the student did not wait; 100 % hides the teacher completely.",
        (
            "sum(rate(distilld_overlap_seconds_total{INSTANCE}[RATE])) / "
            'sum(rate(distilld_stage_busy_seconds_total{INSTANCE, stage="teacher"}[RATE]))',
            "hidden",
        ),
    ),
    plot(
        "Stages at work",
        "percentunit",
        "Share of its time that each stage is busy, over all jobs of the service.",
        (_BUSY_SHARE, "{{stage}}"),
    ),
    plot(
        "Stages waiting",
        "percentunit",
        "Share of its time that each stage waits: for input, or for space at its output.",
        (
            "sum by (stage, reason) (rate(distilld_stage_wait_seconds_total{INSTANCE}[RATE]))"
            " / on (stage) group_left () " + _STAGE_TIME,
            "{{stage}}: {{reason}}",
        ),
    ),
    plot(
        "Decode stage",
        "s",
        "Seconds per second in which at least one answer is being decoded, the stage waits for answers, or waits for "
        "space; and the limit of answers decoded at a time.",
        ('sum(rate(distilld_stage_busy_seconds_total{INSTANCE, stage="decode"}[RATE]))', "at work"),
        (
            'sum by (reason) (rate(distilld_stage_wait_seconds_total{INSTANCE, stage="decode"}[RATE]))',
            "waits: {{reason}}",
        ),
        ("sum(distilld_job_decode_threads{INSTANCE})", "threads"),
    ),
)

TEACHER_CLIENT = (
    plot(
        "Requests to teachers",
        "reqps",
        "Requests sent, retries and hedges included; how many of them were retries or hedges, and how many hedges were "
        "answered first.",
        ("sum(rate(distilld_teacher_requests_total{INSTANCE}[RATE]))", "requests"),
        ("sum(rate(distilld_teacher_retries_total{INSTANCE}[RATE]))", "retries"),
        ("sum(rate(distilld_teacher_hedges_total{INSTANCE}[RATE]))", "hedges"),
        ("sum(rate(distilld_teacher_hedge_wins_total{INSTANCE}[RATE]))", "hedges that came first"),
    ),
    plot(
        "Failures by kind",
        "reqps",
        "Requests that failed, by kind. They are retried, so they cost time only.",
        ("sum by (kind) (rate(distilld_teacher_failures_total{INSTANCE}[RATE]))", "{{kind}}"),
    ),
    plot(
        "Breaker openings",
        "short",
        "Times that the circuit breaker of an endpoint opened.",
        ("sum by (instance) (increase(distilld_teacher_breaker_openings_total{INSTANCE}[RATE]))", "{{instance}}"),
    ),
    plot(
        "Bytes from teachers",
        "Bps",
        "Bytes of answers over the wire, unused ones and heads for hidden states included.",
        ("sum by (instance) (rate(distilld_teacher_received_bytes_total{INSTANCE}[RATE]))", "{{instance}}"),
        ("sum by (instance) (rate(distilld_teacher_head_bytes_total{INSTANCE}[RATE]))", "heads {{instance}}"),
    ),
    plot(
        "Heads from teachers",
        "s",
        "Time spent on fetching heads for hidden states, before the first step.",
        ("sum by (instance) (increase(distilld_teacher_head_seconds_total{INSTANCE}[RATE]))", "{{instance}}"),
    ),
)

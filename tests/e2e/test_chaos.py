"""Two endpoints that fail in every way there is, for a few hundred steps: the job ends with the bits of a calm run."""

import json

from chaos_proxy import ChaosProxy, Script
from support import jobs
from support.rest import Rest, metric_samples

STEPS = 240
MICRO_BATCHES = 2


def chaos(seed, **changes):
    return Script(
        **{
            **dict(
                seed=seed,
                delay=0.004,
                jitter=0.7,
                spike=0.02,
                spike_seconds=0.3,
                reset=0.02,
                half_body=0.02,
                unavailable=0.02,
                garbage=0.02,
                storm=0.006,
                storm_length=5,
            ),
            **changes,
        }
    )


def spec_of(data, output, endpoints):
    return jobs.changed(
        jobs.distil_spec(data, output, endpoints, STEPS),
        {
            "/training/batch_size": 1,
            "/training/micro_batches": MICRO_BATCHES,
            "/checkpoint/every_steps": 50,
        },
    )


def test_chaos_costs_time_and_nothing_else(distilld, teacher, teacher_folder, text_data, tmp_path, capsys):
    calm = jobs.write_spec(tmp_path / "calm.json", spec_of(text_data, tmp_path / "calm", teacher.url))
    distilld.run("run", calm, "--report", tmp_path / "calm-report.json")
    expected = json.loads((tmp_path / "calm-report.json").read_text())

    # Two real teachers of one model behind two proxies; each dies once while the other lives, then one dies again.
    twin = distilld.teacher(teacher_folder, "--dtype", "fp32")
    service = distilld.service(tmp_path / "service")
    rest = Rest(service.url)
    with (
        ChaosProxy(teacher.url, chaos(11, deaths=((40, 1.5), (120, 1.0)))) as one,
        ChaosProxy(twin.url, chaos(12, deaths=((80, 1.5),))) as two,
    ):
        job = rest.wait_job(rest.submit(spec_of(text_data, tmp_path / "chaos", [one.url, two.url])))
        counts = one.counts + two.counts
    fetch = job["progress"]["fetch"] if job["progress"] else {}
    with capsys.disabled():
        print(f"\nfaults: {dict(counts)}\nfetch:  {fetch}")
    assert job["state"] == "succeeded", job["status_reason"]
    assert job["weights_sha256"] == expected["weights_sha256"]
    assert job["weights_sha256"] == jobs.sha256(tmp_path / "chaos" / "model.safetensors")

    # Everything that the script can do was done ...
    for fault in ("spike", "reset", "half_body", "unavailable", "garbage", "storm", "death"):
        assert counts[fault] > 0, f"no {fault} in {dict(counts)}"
    # ... and seen as what it was.
    assert fetch["completed"] == STEPS * MICRO_BATCHES
    assert fetch["retries"] > 0 and fetch["hedges"] > 0
    for kind in ("connection", "overloaded", "bad_response"):
        assert fetch["failures"][kind] > 0, fetch["failures"]
    assert fetch["requests"] >= fetch["completed"] + fetch["retries"]
    calm_fetch = expected["last"]["fetch"]
    assert calm_fetch["retries"] == 0 and calm_fetch["failures"] == {}

    samples = metric_samples(rest.get("/metrics").text)
    assert samples["distilld_teacher_requests_total"] == fetch["requests"]
    assert samples["distilld_teacher_retries_total"] == fetch["retries"]
    assert samples["distilld_teacher_hedges_total"] == fetch["hedges"]
    for kind, count in fetch["failures"].items():
        assert samples[f'distilld_teacher_failures_total{{kind="{kind}"}}'] == count

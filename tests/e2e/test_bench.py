"""`distilld-bench`: what it prints, checked against an oracle of our own, and what it says of bad input."""

import heapq
import json
import pathlib
import random
import subprocess
import sys

import pytest
from support import jobs

SECONDS = 120


def bench(programs, *arguments, code=0):
    done = subprocess.run(
        [str(programs / "distilld-bench"), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr


def oracle(latencies, concurrency, student):
    """Requests go out in order as slots free up; training is in order. In whole milliseconds."""
    free = [0] * concurrency
    trained = 0
    for latency in latencies:
        answered = heapq.heappop(free) + latency
        heapq.heappush(free, answered)
        trained = max(trained, answered) + student
    return trained


@pytest.mark.parametrize("flags", [[], ["--documents"]])
def test_data_measures_one_dataset_at_three_starts(programs, tmp_path, flags):
    file = jobs.write_text_data(tmp_path / "text.jsonl", 20_000)
    report = bench(programs, "data", file, "--sequence-length", 64, "--folder", tmp_path, *flags)
    assert report["same_dataset"]
    assert report["bytes"] == file.stat().st_size
    assert report["tokens"] > 100_000
    assert [entry.name for entry in tmp_path.iterdir()] == ["text.jsonl"], "what was kept is left there"
    ids = report["tokens"] * 4 / 2**20
    assert report["in_memory"]["held_anonymous_mebibytes"] > ids
    assert "absent.jsonl: No such file" in bench(programs, "data", tmp_path / "absent.jsonl", code=2)


def latency_file(folder, count, seed=5):
    source = random.Random(seed)
    latencies = [round(source.lognormvariate(5, 0.6)) for _ in range(count)]
    file = folder / "latencies.txt"
    file.write_text("".join(f"{latency}\n" for latency in latencies))
    return file, latencies


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_simulate_reaches_what_an_oracle_reaches_with_the_same_latencies(programs, tmp_path, concurrency):
    file, latencies = latency_file(tmp_path, 500)
    report = bench(
        programs,
        "simulate",
        "--latencies",
        file,
        "--batches",
        500,
        "--student-ms",
        30,
        "--concurrency",
        concurrency,
        "--window",
        500,
    )
    best = oracle(latencies, concurrency, 30)
    assert report["oracle_ms"] == pytest.approx(best)
    assert best <= report["makespan_ms"] <= best / 0.98
    assert report["efficiency"] == pytest.approx(best / report["makespan_ms"])
    mean = sum(latencies) / len(latencies)
    assert report["teacher_ms"] == pytest.approx(mean)
    assert report["bound"] == pytest.approx((mean + 30) / max(mean / concurrency, 30))
    assert report["speedup_over_sequential"] == pytest.approx(500 * (mean + 30) / report["makespan_ms"])
    assert report["most_in_flight"] == concurrency
    assert report["requests"] == 500


def test_simulate_is_the_same_every_time(programs):
    arguments = ("simulate", "--sigma", 1, "--hedge", "--failure-rate", 0.05, "--seed", 9, "--batches", 800)
    first = bench(programs, *arguments)
    assert first == bench(programs, *arguments)
    assert first["retries"] > 0 and first["hedges"] > 0
    assert first["requests"] == 800 + first["retries"] + first["hedges"]
    assert first["makespan_ms"] != bench(programs, *arguments[:-4], "--seed", 10, "--batches", 800)["makespan_ms"]


def test_simulate_finds_a_limit_below_the_given_one(programs):
    """T/S = 8: eight hide everything."""
    report = bench(
        programs,
        "simulate",
        "--teacher-ms",
        400,
        "--student-ms",
        50,
        "--concurrency",
        64,
        "--adaptive",
        "--batches",
        2000,
    )
    assert 8 <= report["highest_limit"] <= 16
    assert report["efficiency_of_bound"] > 0.95


def test_one_slow_endpoint_of_four_stalls_the_student_for_less_than_a_twentieth(programs):
    report = bench(
        programs,
        "simulate",
        "--teacher-ms",
        200,
        "--student-ms",
        50,
        "--concurrency",
        8,
        "--batches",
        400,
        "--endpoints",
        4,
        "--slow-factor",
        10,
        "--hedge",
    )
    assert report["stall_fraction"] < 0.05
    assert report["hedge_wins"] > 0
    alone = bench(
        programs,
        "simulate",
        "--teacher-ms",
        200,
        "--student-ms",
        50,
        "--concurrency",
        8,
        "--batches",
        400,
        "--endpoints",
        1,
        "--slow-factor",
        10,
        "--hedge",
    )
    assert alone["stall_fraction"] > 0.5, "the only endpoint is the slow one"


# Short: what is asserted are counts and forms, the figures are for somebody with a quiet machine.
PIPELINE = (
    "pipeline",
    "--teacher-ms",
    10,
    "--student-ms",
    2,
    "--micro-batches",
    4,
    "--steps",
    10,
    "--sequential-steps",
    2,
)


def test_pipeline_reports_what_it_measured(programs, tmp_path):
    trace = tmp_path / "trace.json"
    report = bench(programs, *PIPELINE, "--trace", trace)
    assert report["concurrency"] == 8
    assert report["bound"] == pytest.approx((10 + 2) / max(10 / 8, 2))
    # One after another, a micro-batch takes the teacher's time and the student's; neither can be shorter than asked.
    assert report["sequential_ms_per_batch"] >= 10 + 2
    assert report["speedup_over_sequential"] == pytest.approx(
        40 * report["sequential_ms_per_batch"] / report["makespan_ms"]
    )
    # The student waits for the first answer at least, and while it trains it does not wait.
    assert 0 < report["stall_fraction"] <= 1 - 40 * 2 / report["makespan_ms"]
    assert report["efficiency"] == pytest.approx(report["oracle_ms"] / report["makespan_ms"])
    assert report["oracle_ms"] == pytest.approx(oracle([10] * 40, 8, 2))
    assert report["makespan_ms"] >= report["oracle_ms"]
    assert report["batches"] == 40
    spans = json.loads(trace.read_text())
    trained = [span for span in spans if span.get("name") == "train"]
    assert [span["args"]["micro_batch"] for span in trained] == list(range(40))


def test_pipeline_counts_what_goes_wrong(programs):
    report = bench(programs, *PIPELINE, "--failure-rate", 0.1, "--endpoints", 2, "--slow-factor", 5, "--hedge")
    assert report["retries"] > 0
    assert report["endpoints"] == 2 and report["slow_factor"] == 5


def llama_parameters(config):
    hidden, head = config["hidden_size"], config["hidden_size"] // config["num_attention_heads"]
    attention = 2 * hidden * hidden + 2 * hidden * head * config["num_key_value_heads"]
    layer = attention + 3 * hidden * config["intermediate_size"] + 2 * hidden
    return config["vocab_size"] * hidden + config["num_hidden_layers"] * layer + hidden


@pytest.mark.parametrize("flags", [(), ("--json-answers",)], ids=["binary", "json"])
def test_pipeline_compares_a_real_student_with_answers_at_hand(programs, flags):
    def measure(repeat):
        return bench(
            programs,
            "pipeline",
            "--student",
            json.dumps(jobs.llama_config(32)),
            "--teacher-ms",
            5,
            "--micro-batches",
            2,
            "--steps",
            2,
            "--batch-size",
            2,
            "--sequence-length",
            16,
            "--repeat",
            repeat,
            *flags,
        )

    report = measure(1)
    assert report["answers"] == ("json" if flags else "binary")
    assert report["student_parameters"] == llama_parameters(jobs.llama_config(32))
    assert report["batches"] == 4
    assert report["step_time_ratio"] == pytest.approx(report["student_ms_live"] / report["student_ms_preloaded"])
    # In nanoseconds, which are what the oracle here counts.
    best = oracle([5_000_000] * 4, report["concurrency"], int(1e6 * report["student_ms_preloaded"]))
    assert report["efficiency"] == pytest.approx(best / (4e6 * report["student_ms_live"]), rel=1e-4)

    thrice = measure(3)
    assert len(thrice["step_time_ratios"]) == len(thrice["step_time_ratios_after_fill"]) == 3
    for one, several in (
        ("step_time_ratio", "step_time_ratios"),
        ("efficiency", "efficiencies"),
        ("step_time_ratio_after_fill", "step_time_ratios_after_fill"),
    ):
        assert thrice[one] == sorted(thrice[several])[1]


def test_bad_input_names_what_is_wrong(programs, tmp_path):
    missing = tmp_path / "none.txt"
    assert str(missing) in bench(programs, "simulate", "--latencies", missing, code=2)
    file = tmp_path / "bad.txt"
    file.write_text("10\n20\nsoon\n")
    assert f"{file}:3" in bench(programs, "simulate", "--latencies", file, "--batches", 3, code=2)
    file.write_text("10\n20\n")
    assert "3 are needed" in bench(programs, "simulate", "--latencies", file, "--batches", 3, code=2)
    assert "--concurrency" in bench(programs, "simulate", "--concurrency", 0, code=2)
    assert "max_position_embeddings" in bench(
        programs, "pipeline", "--student", json.dumps(jobs.llama_config(32)), "--sequence-length", 4096, code=2
    )


@pytest.mark.parametrize("teacher", [["--top-k", 8], ["--top-k", 0], ["--beta", 0.5, "--dtype", "bf16"]])
def test_loss_says_what_it_takes(programs, teacher):
    shape = ["--rows", 256, "--hidden", 64, "--vocabulary", 4000, "--threads", 1, "--repeat", 2]
    report = bench(programs, "loss", *shape, *teacher)
    assert report["rows"] == 256 and report["threads"] == 1
    assert report["tokens_per_second"] == pytest.approx(256 / report["ms"] * 1e3)
    assert report["share_of_gemm"] > 0 and report["gemm_gflops"] > 0
    assert 0 < report["staging_ns_per_position"] < report["ms"] * 1e6
    # The head's gradient in fp32, and the logits of the one chunk.
    held = 4000 * 64 * 4 + 256 * 4000 * (2 if report["dtype"] == "bf16" else 4)
    assert report["peak_mebibytes"] * 2**20 > held


TRAIN_FIELDS = {
    *("command", "student_parameters", "dtype", "device", "threads", "replicas", "batch_size"),
    *("sequence_length", "top_k"),
    *("tokens_per_second", "tokens_per_second_slowest", "tokens_per_second_fastest"),
    *("milliseconds_per_micro_batch", "gigaflops_per_second_of_gemm", "share_of_gemm_rate", "peak_resident_mb"),
    *("gigaflops_per_second_of_products", "share_of_product_rate"),
}


@pytest.mark.parametrize(("dtype", "top_k"), [("fp32", 8), ("bf16", 0)])
def test_train_says_what_a_student_makes_of_targets_at_hand(programs, dtype, top_k):
    config = jobs.llama_config(64)
    shape = ["--batch-size", 4, "--sequence-length", 32, "--micro-batches", 2, "--steps", 2, "--threads", 1]
    report = bench(
        programs,
        "train",
        "--student",
        json.dumps(config),
        *shape,
        "--repeat",
        3,
        "--dtype",
        dtype,
        "--device",
        "cpu",
        "--top-k",
        top_k,
    )
    assert report.keys() == TRAIN_FIELDS
    assert report["command"] == "train" and report["threads"] == 1
    assert (report["dtype"], report["device"], report["top_k"]) == (dtype, "cpu", top_k)
    assert (report["batch_size"], report["sequence_length"]) == (4, 32)
    assert report["student_parameters"] == llama_parameters(config)
    slowest, fastest = (report[f"tokens_per_second_{which}"] for which in ("slowest", "fastest"))
    assert 0 < slowest <= report["tokens_per_second"] <= fastest
    # Forward, loss and backward of 4 times 32 positions are a part of what the rounds took.
    assert 0 < report["milliseconds_per_micro_batch"] < 4 * 32 / slowest * 1e3
    assert report["share_of_gemm_rate"] > 0 and report["gigaflops_per_second_of_gemm"] > 0
    assert report["share_of_product_rate"] > 0 and report["gigaflops_per_second_of_products"] > 0
    assert report["peak_resident_mb"] > 4 * report["student_parameters"] / 1e6


def test_train_tells_what_each_operation_takes(programs):
    config = jobs.llama_config(64)
    shape = ["--batch-size", 2, "--sequence-length", 32, "--micro-batches", 2, "--steps", 1, "--threads", 1]
    report = bench(programs, "train", "--student", json.dumps(config), *shape, "--repeat", 1, "--by-op")
    assert report.keys() == TRAIN_FIELDS | {"operations"}
    rows = {row["operation"]: row for row in report["operations"]}
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1, abs=1e-6)
    # A layer multiplies with seven matrices, and all of it with the head: forward, and back for both factors.
    products = rows["aten::mm"]["calls"] + rows["aten::addmm_"]["calls"]
    assert products >= 3 * (7 * config["num_hidden_layers"] + 1) - 1
    assert rows["aten::mm"]["megabytes"] > 0
    assert rows["aten::t"]["megabytes"] == 0, "a view moves nothing"


def test_train_names_what_it_cannot_train(programs, tmp_path):
    student = ["train", "--sequence-length", 16, "--student", json.dumps(jobs.llama_config(32))]
    assert "--device: " in bench(programs, *student, "--device", "tpu", code=2)
    assert "--top-k: the student has 257 tokens" in bench(programs, *student, "--top-k", 300, code=2)
    assert str(tmp_path / "absent") in bench(programs, "train", "--student", tmp_path / "absent", code=2)


TOKENIZE_FIELDS = {
    *("tokenizer", "vocabulary_size", "load_seconds", "documents", "bytes", "tokens", "bytes_per_token", "threads"),
    *("megabytes_per_second", "megabytes_per_second_of_all_threads"),
    *("jsonl_megabytes_per_second", "jsonl_megabytes_per_second_of_all_threads"),
}


def test_tokenize_says_how_fast_text_becomes_ids(programs, tmp_path):
    subprocess.run([programs / "distilld-tokenizer-probe", "write", tmp_path], check=True)
    text = "".join(f"Document {number}\n{'a line of it ' * 100}\n\n" for number in range(50))
    file = tmp_path / "text.txt"
    file.write_text(text)
    report = bench(programs, "tokenize", tmp_path, "--text", file, "--threads", 2, "--repeat", 2)
    assert report.keys() == TOKENIZE_FIELDS
    assert "byte" in report["tokenizer"]
    assert report["documents"] == 50, "cut at empty lines"
    assert report["bytes"] == report["tokens"] == len(text), "a token a byte"
    assert report["bytes_per_token"] == 1
    assert report["vocabulary_size"] == jobs.BYTE_VOCABULARY
    assert report["threads"] == 2
    assert all(report[field] > 0 for field in TOKENIZE_FIELDS if "megabytes" in field)
    assert "tokenizer.json" in bench(programs, "tokenize", tmp_path / "absent", "--text", file, code=2)
    assert str(tmp_path / "none.txt") in bench(programs, "tokenize", tmp_path, "--text", tmp_path / "none.txt", code=2)


def test_the_comparison_with_transformers_prints_a_table_and_one_object(programs):
    """The smallest shape in two of the ways, one round of one step: forms, not figures."""
    ways = ["distilld fp32", "HF fp32"]
    script = pathlib.Path(__file__).parents[2] / "bench" / "compare_hf.py"
    arguments = ["--bench", programs / "distilld-bench", "--shape", "0.9M", "--rounds", "1", "--steps", "1"]
    done = subprocess.run(
        [sys.executable, script, *arguments, "--threads", "1", "--top-k", "4", "--ways", *ways],
        capture_output=True,
        text=True,
        timeout=4 * SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *table, last = done.stdout.splitlines()
    assert table[0] == "| tokens/s | distilld fp32 | HF fp32 |"
    report = json.loads(last)
    assert (report["threads"], report["rounds"], report["shapes"].keys()) == (1, 1, {"0.9M"})
    shape = report["shapes"]["0.9M"]
    rates = shape["tokens_per_second"]
    assert rates.keys() == set(ways)
    assert table[2] == f"| 0.9M | {rates[ways[0]]:,.0f} | {rates[ways[1]]:,.0f} |"
    assert shape["ratio"] == {"distilld fp32": pytest.approx(rates[ways[0]] / rates[ways[1]], abs=1e-3)}
    for share in ("share_of_gemm_rate", "share_of_product_rate"):
        assert shape[share].keys() == {"distilld fp32"}, "transformers does not measure it"


def test_loss_refuses_more_entries_than_tokens(programs):
    assert "--top-k: is above --vocabulary" in bench(programs, "loss", "--vocabulary", 5, "--top-k", 6, code=2)

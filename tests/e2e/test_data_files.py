"""A job on several files, packed or not, is the job on all their lines in one."""

import gzip
import subprocess

from support import jobs


def test_weights_do_not_depend_on_how_lines_are_spread_over_files(distilld, tmp_path):
    lines = [{"text": line} for line in jobs.text_lines(90)]
    lines[5:7] = [{"prompt": line["text"], "completion": "Yes."} for line in lines[5:7]]
    whole = jobs.write_jsonl(tmp_path / "whole.jsonl", lines)
    first = jobs.write_jsonl(tmp_path / "first", lines[:30])
    (tmp_path / "part-1.gz").write_bytes(gzip.compress(jobs.write_jsonl(tmp_path / "x", lines[30:60]).read_bytes()))
    jobs.write_jsonl(tmp_path / "part-2", lines[60:])
    subprocess.run(["zstd", "-q", "--rm", tmp_path / "part-2"], check=True)
    packed = [str(first), str(tmp_path / "part-*")]
    weights = []
    for name, train in (("one", str(whole)), ("several", packed)):
        spec = jobs.changed(jobs.base_spec(whole, tmp_path / name, steps=4), {"/dataset/train": train})
        distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec))
        weights.append(jobs.sha256(tmp_path / name / "model.safetensors"))
    assert weights[0] == weights[1]


def test_what_is_wrong_with_files_is_said_with_their_place(distilld, tmp_path):
    good = jobs.write_text_data(tmp_path / "good.jsonl", 40)
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(good.read_bytes())[:-5])
    spec = jobs.changed(jobs.base_spec(good, tmp_path / "out", steps=1), {"/dataset/train": [str(good), str(cut)]})
    refused = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), code=1)
    assert f"/dataset/train: {cut}: is cut off: the gzip data have no end" in refused.out + refused.err


def test_files_that_are_not_there_are_refused_at_once(distilld, tmp_path):
    good = jobs.write_text_data(tmp_path / "good.jsonl", 40)
    spec = jobs.base_spec(good, tmp_path / "out", steps=1)
    spec["dataset"] |= {"train": [str(good), str(tmp_path / "absent"), str(tmp_path / "*.txt")], "eval": str(tmp_path)}
    refused = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), code=2)
    for said in (
        f"/dataset/train/1: '{tmp_path}/absent' is not a file",
        f"/dataset/train/2: '{tmp_path}/*.txt' is not a file",
        f"/dataset/eval: '{tmp_path}' is a folder, not a file",
    ):
        assert said in refused.err, refused.err
    assert not (tmp_path / "out").exists()


def test_a_run_goes_on_with_the_loss_that_it_began_with(distilld, tmp_path):
    pairs = [{"prompt": line[:20], "completion": line[20:]} for line in jobs.text_lines(40)]
    data = jobs.write_jsonl(tmp_path / "pairs.jsonl", pairs)
    spec = jobs.changed(jobs.base_spec(data, tmp_path / "out", steps=2), {"/dataset/packing": False})
    file = jobs.write_spec(tmp_path / "spec.json", spec)
    distilld.run("run", file, "--set", "/checkpoint/every_steps=1")
    refused = distilld.run(
        "run",
        file,
        "--resume",
        "--set",
        "/training/max_steps=3",
        "--set",
        "/dataset/completion_only_loss=false",
        code=1,
    )
    assert "/dataset/train: not the dataset that the checkpoint was trained on" in refused.out + refused.err

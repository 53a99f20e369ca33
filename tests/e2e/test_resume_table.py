"""A run that is interrupted in the middle of an epoch and goes on has the bits of one that was left alone: every family
with every packing, with adapters and without, and every optimizer.

Cells take turns at what is not in the table: bf16, checkpointed gradients, ternary weights.
"""

import itertools
import json
import shutil

import pytest
import torch
from support import jobs
from transformers import AutoConfig, AutoModelForCausalLM

HALF, STEPS = 3, 6
AT_ONCE = 2
SIZES = dict(hidden_size=32, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
FAMILIES = {
    "llama": SIZES,
    "mistral": dict(SIZES, sliding_window=7),
    "qwen2": SIZES,
    "qwen3": dict(SIZES, head_dim=16),
    # With the dropout of every published one: 0.1 in three places.
    "gpt2": dict(n_embd=32, n_inner=128, n_layer=2, n_head=4, n_positions=64),
}
PACKINGS = ("joined", "documents", False)
ADAPTERS = (None, {"r": 4, "alpha": 8, "dropout": 0.2})
OPTIMIZERS = {
    "adamw": {},
    "adamw_8bit": {"optimizer": "adamw_8bit"},
    "sgd": {"optimizer": "sgd", "sgd_momentum": 0.9, "learning_rate": 0.1},
}
CELLS = list(itertools.product(FAMILIES, PACKINGS, ADAPTERS, OPTIMIZERS))


def config(family):
    special = dict(bos_token_id=None, eos_token_id=256, pad_token_id=None)
    return {
        "model_type": family,
        "vocab_size": jobs.BYTE_VOCABULARY,
        "max_position_embeddings": 64,
        **FAMILIES[family],
        **special,
    }


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """What adapters are beside."""
    folder = tmp_path_factory.mktemp("bases")
    for family in FAMILIES:
        torch.manual_seed(2)
        AutoModelForCausalLM.from_config(AutoConfig.for_model(**config(family))).save_pretrained(folder / family)
    return folder


def cell_spec(number, cell, data, bases, output):
    family, packing, adapters, optimizer = cell
    spec = jobs.base_spec(data, output, STEPS)
    spec["student"] = {"init": "random", "config": config(family), "dtype": ("fp32", "bf16")[number % 2]}
    if adapters:
        spec["student"] = {"model": str(bases / family), "dtype": spec["student"]["dtype"], "lora": adapters}
    elif number % 4 == 0 and family != "gpt2":
        spec["student"]["quantization"] = "ternary"
    spec["dataset"]["packing"] = packing
    spec["training"].update(micro_batches=2, gradient_checkpointing=number % 3 == 0, **OPTIMIZERS[optimizer])
    spec["checkpoint"] = {"every_steps": HALF, "every_secs": 0, "keep": 2}
    return spec


def name_of(number, cell):
    family, packing, adapters, optimizer = cell
    return f"{number:02d}-{family}-{packing}-{'lora' if adapters else 'all'}-{optimizer}"


def run_all(distilld, files):
    """As many at once as there are cores to compute."""
    waiting, running, ended = list(files), [], []
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            running.append(distilld.start("run", waiting.pop(0)))
        ended.append(running.pop(0).expect(0))
    return ended


def bits(output):
    weights = [output / "model.safetensors", output / "adapter_model.safetensors"]
    optimizer = output / "checkpoints" / f"step-{STEPS:08d}" / "optimizer.safetensors"
    return [jobs.sha256(file) for file in [*filter(lambda file: file.exists(), weights), optimizer]]


def interrupted(spec, whole, output):
    """The spec of a run that was killed after its first checkpoint, which lies there."""
    name = f"step-{HALF:08d}"
    shutil.copytree(whole / "checkpoints" / name, output / "checkpoints" / name)
    return jobs.changed(spec, {"/output": str(output)})


def test_every_cell_goes_on_to_the_bits_of_a_run_that_was_left_alone(distilld, text_data, bases, tmp_path):
    assert len(CELLS) == 90
    specs = {}
    for number, cell in enumerate(CELLS):
        name = name_of(number, cell)
        specs[name] = cell_spec(number, cell, text_data, bases, tmp_path / name / "whole")
        (tmp_path / name).mkdir()
    run_all(distilld, [jobs.write_spec(tmp_path / name / "whole.json", spec) for name, spec in specs.items()])
    parts = []
    for name, spec in specs.items():
        folder = tmp_path / name
        parts.append(jobs.write_spec(folder / "parts.json", interrupted(spec, folder / "whole", folder / "parts")))
    went_on = run_all(distilld, parts)
    assert all(f"step-{HALF:08d}" in process.out and "resumed from" in process.out for process in went_on)
    table = {name: (bits(tmp_path / name / "whole"), bits(tmp_path / name / "parts")) for name in specs}
    for name, (whole, after) in table.items():
        print(f"{name:40} {whole[0][:16]}  {'same bits' if whole == after else 'OTHER BITS'}")
    assert all(len(whole) == 2 for whole, _ in table.values())
    assert not [name for name, (whole, after) in table.items() if whole != after]
    # What is in the table counts: no two cells are one run.
    assert len({whole[0] for whole, _ in table.values()}) == len(CELLS)


@pytest.mark.parametrize("began", ["fp32", "bf16"])
def test_a_run_goes_on_in_the_arithmetic_that_it_began_with(distilld, text_data, tmp_path, began):
    """Where the spec leaves it to the machine, which may be another by then."""
    spec = jobs.changed(jobs.base_spec(text_data, tmp_path / "whole", STEPS), {"/student/dtype": began})
    spec["checkpoint"] = {"every_steps": HALF, "every_secs": 0, "keep": 2}
    distilld.run("run", jobs.write_spec(tmp_path / "whole.json", spec))
    spec = jobs.changed(interrupted(spec, tmp_path / "whole", tmp_path / "parts"), {"/student/dtype": None})
    process = distilld.run("run", jobs.write_spec(tmp_path / "parts.json", spec))
    assert f"parameters ({began})" in process.out
    assert bits(tmp_path / "parts") == bits(tmp_path / "whole")
    state = json.loads((tmp_path / "parts" / "checkpoints" / f"step-{STEPS:08d}" / "state.json").read_text())
    assert json.loads(state["spec"])["spec"]["student"]["dtype"] == began
    fresh = jobs.changed(spec, {"/output": str(tmp_path / "fresh")})
    of_this_machine = distilld.run("run", jobs.write_spec(tmp_path / "fresh.json", fresh)).out
    stays = f"student.dtype auto stays {began} as at the start of the run"
    assert (stays in process.out) == (f"parameters ({began})" not in of_this_machine)
    # Another run may take its place; that one has the arithmetic of this machine.
    other = jobs.changed(spec, {"/training/learning_rate": 1e-4, "/overwrite": True})
    replaced = distilld.run("run", jobs.write_spec(tmp_path / "other.json", other)).out
    assert ("parameters (bf16)" in replaced) == ("parameters (bf16)" in of_this_machine)
    other = jobs.changed(spec, {"/student/dtype": "bf16" if began == "fp32" else "fp32"})
    other["output"] = str(tmp_path / "whole")
    refused = distilld.run("run", jobs.write_spec(tmp_path / "refused.json", other), code=1)
    assert "/student/dtype: is " in refused.err


def test_bits_of_other_runs_differ(distilld, text_data, bases, tmp_path):
    """The comparison sees a seed, of dropout alone with adapters, and the tiniest change of a step."""
    seen = []
    for number, changes in enumerate([{}, {"/training/seed": 43}, {"/training/learning_rate": 2.0000001e-3}]):
        cell = ("gpt2", "documents", None, "adamw")
        output = tmp_path / str(number)
        spec = jobs.changed(cell_spec(0, cell, text_data, bases, output), changes)
        distilld.run("run", jobs.write_spec(tmp_path / f"{number}.json", spec))
        seen.append(bits(output)[0])
        assert json.loads((output / "config.json").read_text())["resid_pdrop"] == 0.1
    assert len(set(seen)) == len(seen)

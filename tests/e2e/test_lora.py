"""Adapters as PEFT has them: ours load there, theirs here, with the same logits and gradients; jobs that train them."""

import json

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from support import jobs
from test_network_parity import assert_close, make_model, our_gradients, our_logits, relative_errors, their_logits
from transformers import AutoConfig, AutoModelForCausalLM

# Shape of the base, and what of it is adapted.
CASES = {
    "all_linear": ("gqa", "all-linear"),
    "some": ("qwen3_biases_tied", ["q_proj", "v_proj", "down_proj"]),
    "conv1d": ("gpt2", ["c_attn", "mlp.c_proj"]),
    "conv1d_all_linear": ("gpt2_untied", "all-linear"),
    "window": ("mistral_window", ["self_attn.o_proj", "layers.1.mlp.up_proj"]),
}


def peft_model(base, targets, rank=5, alpha=12):
    """With both matrices drawn: new adapters add nothing."""
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_pretrained(base)
    model = get_peft_model(model, LoraConfig(r=rank, lora_alpha=alpha, target_modules=targets, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.2)
    return model.eval()


@pytest.fixture(params=CASES)
def adapted(request, tmp_path):
    """A base and adapters of PEFT's beside it; their model, and their folder."""
    shape, targets = CASES[request.param]
    make_model(shape).save_pretrained(tmp_path / "base")
    model = peft_model(tmp_path / "base", targets)
    model.save_pretrained(tmp_path / "adapter")
    return model, tmp_path / "adapter"


@pytest.fixture
def ids():
    return torch.randint(0, 203, (3, 70), generator=torch.Generator().manual_seed(5))


def test_adapters_of_peft_give_their_logits_and_come_back_unchanged(adapted, ids, tmp_path):
    model, folder = adapted
    with torch.no_grad():
        theirs = model(ids).logits
    assert (theirs - their_logits(tmp_path / "base", ids)).abs().max() > 0.1
    assert_close(our_logits(folder, ids, "--save", tmp_path / "ours"), theirs)
    ours, written = (load_file(f / "adapter_model.safetensors") for f in (tmp_path / "ours", folder))
    assert ours.keys() == written.keys() and all(torch.equal(ours[name], written[name]) for name in ours)
    again = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "ours").eval()
    with torch.no_grad():
        assert torch.equal(again(ids).logits, theirs)


def test_gradient_of_every_adapter_is_theirs(adapted, ids, tmp_path):
    model, folder = adapted
    ours = our_gradients(folder, ids, tmp_path / "gradients")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)
    model(ids, labels=ids).loss.backward()
    theirs = {
        name.replace(".default", ""): parameter.grad for name, parameter in model.named_parameters() if "lora_" in name
    }
    errors = relative_errors(ours, theirs)
    print(f"largest relative error {max(errors.values()):.1e} of {len(errors)} adapters")
    assert max(errors.values()) < 1e-4


@pytest.fixture
def base(request, tmp_path):
    """A byte-level base, as a job takes it; in fp32, or what the parameter says."""
    config = jobs.llama_config(32)
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    model.to(getattr(request, "param", torch.float32)).save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def lora_spec(data, base, output, steps, **lora):
    spec = jobs.base_spec(data, output, steps)
    spec["student"] = {"model": str(base), "dtype": "fp32", "lora": {"r": 4, "alpha": 8, **lora}}
    spec["training"].update(lr_scheduler_type="constant", learning_rate=1e-2)
    return spec


def run(distilld, spec, folder, *flags):
    file = jobs.write_spec(folder / "spec.json", spec)
    distilld.run("run", file, "--report", folder / "report.json", *flags)
    return json.loads((folder / "report.json").read_text())


# Merged weights are rounded once more, in bf16 to 8 bits.
@pytest.mark.parametrize(("base", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 0.05)], indirect=["base"])
def test_a_job_writes_a_peft_folder_and_the_merged_model(distilld, base, bound, text_data, tmp_path):
    output = tmp_path / "student"
    spec = lora_spec(text_data, base, output, 6, merge=True, dropout=0.1)
    spec["dataset"]["eval"] = str(text_data)
    report = run(distilld, spec, tmp_path)
    assert not (output / "config.json").exists() and not (output / "model.safetensors").exists()
    written = json.loads((output / "adapter_config.json").read_text())
    assert written["base_model_name_or_path"] == str(base) and written["peft_type"] == "LORA"
    assert (output / "tokenizer.json").exists() and (output / "merged" / "tokenizer.json").exists()
    adapters = load_file(output / "adapter_model.safetensors")
    assert len(adapters) == 2 * 2 * 7 and all("lora_" in name for name in adapters)
    assert report["weights_sha256"] == jobs.sha256(output / "adapter_model.safetensors")

    ids = torch.randint(0, 257, (3, 24), generator=torch.Generator().manual_seed(5))
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), output).eval()
    with torch.no_grad():
        theirs = adapted(ids).logits
        before = their_logits(base, ids)
    assert (theirs - before).abs().max() > 1e-2
    assert (our_logits(output, ids) - theirs).abs().max() < 1e-5
    assert (their_logits(output / "merged", ids) - theirs).abs().max() < bound
    merged, whole = (load_file(folder / "model.safetensors") for folder in (output / "merged", base))
    assert {name: t.dtype for name, t in merged.items()} == {name: t.dtype for name, t in whole.items()}
    assert torch.equal(merged["model.norm.weight"], whole["model.norm.weight"])


def test_adapters_beside_gpt2_are_merged_into_its_transposed_weights(distilld, text_data, tmp_path):
    base, output = tmp_path / "base", tmp_path / "student"
    torch.manual_seed(1)
    config = AutoConfig.for_model("gpt2", vocab_size=257, n_embd=32, n_layer=2, n_head=4, n_positions=64)
    AutoModelForCausalLM.from_config(config).save_pretrained(base)
    run(distilld, lora_spec(text_data, base, output, 6, merge=True, target_modules=["c_attn", "mlp.c_fc"]), tmp_path)
    written = json.loads((output / "adapter_config.json").read_text())
    assert written["fan_in_fan_out"] is True and written["target_modules"] == ["c_attn", "mlp.c_fc"]
    ids = torch.randint(0, 257, (3, 24), generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), output).eval()(ids).logits
    assert (adapted - their_logits(base, ids)).abs().max() > 1e-2
    assert (our_logits(output, ids) - adapted).abs().max() < 1e-5
    assert (their_logits(output / "merged", ids) - adapted).abs().max() < 1e-5


def test_updates_of_adapters_are_those_of_peft(distilld, base, tmp_path):
    """AdamW with decay and clipping for a few steps, over the same rows in the same order."""
    model = peft_model(base, ["q_proj", "down_proj"], rank=4, alpha=8)
    model.save_pretrained(tmp_path / "begin")
    rows = torch.randint(0, 256, (8, jobs.SEQUENCE_LENGTH + 1), generator=torch.Generator().manual_seed(7))
    data = jobs.write_jsonl(tmp_path / "rows.jsonl", ({"input_ids": row} for row in rows.tolist()))
    spec = lora_spec(data, tmp_path / "begin", tmp_path / "after", 4)
    spec["dataset"].update(packing=False, shuffle="off")
    spec["training"].update(batch_size=2, micro_batches=1, weight_decay=0.1, max_grad_norm=0.5)
    run(distilld, spec, tmp_path)

    adapters = {name: p for name, p in model.named_parameters() if "lora_" in name}
    optimizer = torch.optim.AdamW(adapters.values(), lr=1e-2, weight_decay=0.1)
    for ids in rows.split(2):
        optimizer.zero_grad()
        model(ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(adapters.values(), 0.5)
        optimizer.step()
    before, after = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("begin", "after"))
    for name, parameter in adapters.items():
        name = name.replace(".default", "")
        moved = parameter.detach() - before[name]
        assert (after[name] - parameter.detach()).norm() < 1e-3 * moved.norm(), name


def test_a_job_that_goes_on_has_the_bits_of_one_that_was_not_interrupted(distilld, base, text_data, tmp_path):
    """In the middle of an epoch, with dropout. And the next job goes on from the adapters."""
    whole = run(distilld, lora_spec(text_data, base, tmp_path / "whole", 6, dropout=0.2), tmp_path)
    half = run(distilld, lora_spec(text_data, base, tmp_path / "parts", 3, dropout=0.2), tmp_path)
    spec = lora_spec(text_data, base, tmp_path / "parts", 6, dropout=0.2)
    parts = run(distilld, spec, tmp_path, "--resume")
    assert parts["weights_sha256"] == whole["weights_sha256"] != half["weights_sha256"]
    weights = tmp_path / "parts" / "checkpoints" / "step-00000006" / "model.safetensors"
    assert all("lora_" in name for name in load_file(weights))

    spec = lora_spec(text_data, tmp_path / "parts", tmp_path / "next", 2, dropout=0.2)
    run(distilld, spec, tmp_path)
    assert json.loads((tmp_path / "next" / "adapter_config.json").read_text())["base_model_name_or_path"] == str(base)

    # Beside another base it is another student.
    other = load_file(base / "model.safetensors")
    other["model.norm.weight"] += 0.5
    save_file(other, base / "model.safetensors", metadata={"format": "pt"})
    spec = lora_spec(text_data, base, tmp_path / "parts", 9, dropout=0.2)
    refused = distilld.run("run", jobs.write_spec(tmp_path / "spec.json", spec), code=1)
    assert "base_weights_sha256 is" in refused.err

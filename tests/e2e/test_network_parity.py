"""Our networks agree with Hugging Face transformers: logits in both directions, the gradient of every parameter.

Run with the Python environment that scripts/setup.sh makes. DISTILLD_BIN_DIR names the folder of the built programs.
"""

import hashlib
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.environ.get("DISTILLD_BIN_DIR", SOURCE / "build/release/bin")) / "network_probe"
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
BF16_BOUND = 0.2  # measured: up to 0.16, by their own bf16 too; each rounding costs up to 0.4%, and there are dozens
YARN_ROPE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
WITHOUT_DROPOUT = dict(embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0)
# The family of a shape is its model_type, Llama's where it names none.
SHAPES = {
    "untied": dict(num_attention_heads=4, num_key_value_heads=4),
    "tied": dict(num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True),
    "gqa": dict(num_attention_heads=6, num_key_value_heads=2, hidden_size=96),
    "gqa_tied": dict(num_attention_heads=4, num_key_value_heads=1, tie_word_embeddings=True),
    "wide_heads": dict(num_attention_heads=4, num_key_value_heads=2, head_dim=32),
    "biases": dict(num_attention_heads=4, num_key_value_heads=2, attention_bias=True, mlp_bias=True),
    "llama3_rope": dict(num_attention_heads=4, num_key_value_heads=2, rope_parameters=LLAMA3_ROPE),
    "linear_rope": dict(
        num_attention_heads=4,
        num_key_value_heads=2,
        rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    ),
    "yarn_rope": dict(num_attention_heads=4, num_key_value_heads=2, rope_parameters=YARN_ROPE),
    "yarn_rope_tuned": dict(
        num_attention_heads=4,
        num_key_value_heads=2,
        rope_parameters={**YARN_ROPE, "beta_fast": 16, "mscale": 0.7, "mscale_all_dim": 1.2, "truncate": False},
    ),
    "qwen2": dict(model_type="qwen2", num_attention_heads=6, num_key_value_heads=2, hidden_size=96),
    "qwen2_tied": dict(model_type="qwen2", num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True),
    "qwen3": dict(model_type="qwen3", num_attention_heads=4, num_key_value_heads=2, head_dim=24),
    "qwen3_biases_tied": dict(
        model_type="qwen3",
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=32,
        attention_bias=True,
        tie_word_embeddings=True,
    ),
    "mistral": dict(model_type="mistral", num_attention_heads=4, num_key_value_heads=2, sliding_window=None),
    "mistral_window": dict(model_type="mistral", num_attention_heads=4, num_key_value_heads=2, sliding_window=17),
    "mistral_wide_window": dict(
        model_type="mistral", num_attention_heads=4, num_key_value_heads=2, head_dim=32, sliding_window=70
    ),
    "gpt2": dict(model_type="gpt2", n_head=4),
    "gpt2_untied": dict(
        model_type="gpt2", n_head=2, n_inner=100, activation_function="gelu", tie_word_embeddings=False
    ),
    "gpt2_scaled_by_layer": dict(
        model_type="gpt2",
        n_head=4,
        scale_attn_by_inverse_layer_idx=True,
        reorder_and_upcast_attn=True,
        activation_function="gelu_pytorch_tanh",
    ),
    "gpt2_odd_heads_unscaled": dict(
        model_type="gpt2", n_head=4, n_embd=60, scale_attn_weights=False, activation_function="relu"
    ),
}
# What every shape has unless it says otherwise, in the words of its family.
SIZES = dict(hidden_size=64, intermediate_size=112, num_hidden_layers=3, max_position_embeddings=256, rms_norm_eps=1e-5)
GPT2_SIZES = dict(n_embd=64, n_layer=3, n_positions=256, layer_norm_epsilon=1e-5, **WITHOUT_DROPOUT)


def run_program(*arguments, stdin=""):
    command = [str(PROGRAM), *map(str, arguments)]
    result = subprocess.run(command, input=stdin.encode(), capture_output=True, timeout=120)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout


def our_logits(folder, ids, *arguments):
    raw = run_program("logits", folder, *arguments, stdin=json.dumps({"input_ids": ids.tolist()}))
    return torch.from_numpy(np.frombuffer(raw, dtype="<f4").copy()).reshape(*ids.shape, -1)


def their_logits(folder, ids, dtype=torch.float32):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    with torch.no_grad():
        return model(ids).logits.float()


def our_gradients(folder, ids, out, *arguments):
    run_program("gradients", folder, out, *arguments, stdin=json.dumps({"input_ids": ids.tolist()}))
    return load_file(out)


def their_gradients(folder, ids, dtype=torch.float32):
    """Of the mean cross entropy of the next tokens, by their own loss."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model(ids, labels=ids).loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def relative_errors(ours, theirs):
    assert ours.keys() == theirs.keys()
    errors = {}
    for name, wanted in theirs.items():
        wanted = wanted.double()
        assert ours[name].shape == wanted.shape and wanted.norm() > 0, name
        errors[name] = ((ours[name].double() - wanted).norm() / wanted.norm()).item()
    return errors


def make_config(shape):
    fields = {"model_type": "llama", "vocab_size": 203, "initializer_range": 0.2, **SHAPES[shape]}
    sizes = GPT2_SIZES if fields["model_type"] == "gpt2" else SIZES
    return AutoConfig.for_model(**{**sizes, **fields})


def make_model(shape, seed=0):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(make_config(shape)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Norms of 1 and biases of 0 would hide a network that ignores them.
            if "norm" in name or (".ln_" in name and name.endswith("weight")):
                parameter.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.3)
    return model


def digest(folder):
    return hashlib.sha256((pathlib.Path(folder) / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture
def ids():
    return torch.randint(0, 203, (3, 70), generator=torch.Generator().manual_seed(5))


def assert_close(ours, theirs, tolerance=1e-4):
    assert ours.shape == theirs.shape
    assert theirs.std() > 0.1
    assert (ours - theirs).abs().max().item() < tolerance


@pytest.mark.parametrize("shape", SHAPES)
def test_folder_of_transformers_gives_their_logits_and_comes_back_unchanged(shape, ids, tmp_path):
    make_model(shape).save_pretrained(tmp_path / "theirs")
    ours = our_logits(tmp_path / "theirs", ids, "--save", tmp_path / "ours")
    assert_close(ours, their_logits(tmp_path / "theirs", ids))
    assert digest(tmp_path / "ours") == digest(tmp_path / "theirs")
    # What we wrote loads there, as the same function and with the same configuration.
    assert torch.equal(their_logits(tmp_path / "ours", ids), their_logits(tmp_path / "theirs", ids))
    before = AutoConfig.from_pretrained(tmp_path / "theirs").to_dict()
    after = AutoConfig.from_pretrained(tmp_path / "ours").to_dict()
    del before["_name_or_path"]
    assert {key: after.get(key) for key in before} == before


@pytest.mark.parametrize("shape", SHAPES)
def test_random_network_of_ours_loads_in_transformers(shape, ids, tmp_path):
    make_config(shape).save_pretrained(tmp_path)
    run_program("random", tmp_path / "config.json", 11, tmp_path / "ours")
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    assert model.dtype == torch.float32
    assert_close(our_logits(tmp_path / "ours", ids), their_logits(tmp_path / "ours", ids))


@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_of_every_parameter_is_theirs(shape, ids, tmp_path):
    """Each within 1e-4 of its norm in fp32."""
    make_model(shape).save_pretrained(tmp_path)
    ours = our_gradients(tmp_path, ids, tmp_path / "gradients")
    errors = relative_errors(ours, their_gradients(tmp_path, ids))
    print(f"{shape}: largest relative error {max(errors.values()):.1e} of {len(errors)} parameters")
    assert all(gradient.dtype == torch.float32 for gradient in ours.values())
    assert not {name: error for name, error in errors.items() if error > 1e-4}


@pytest.mark.parametrize("shape", SHAPES)
def test_bf16_gradients_are_as_close_to_fp32_as_theirs(shape, ids, tmp_path):
    """Each within BF16_BOUND of its fp32 norm or, where transformers' own bf16 is not (biases of keys, whose gradients
    nearly cancel), as it; and all together no further off than that."""
    make_model(shape).save_pretrained(tmp_path)
    exact = their_gradients(tmp_path, ids)
    ours = relative_errors(our_gradients(tmp_path, ids, tmp_path / "gradients", "--dtype", "bf16"), exact)
    theirs = relative_errors(their_gradients(tmp_path, ids, torch.bfloat16), exact)
    mean = {"ours": sum(ours.values()) / len(ours), "theirs": sum(theirs.values()) / len(theirs)}
    print(f"{shape}: largest {max(ours.values()):.3f} (theirs {max(theirs.values()):.3f}), mean {mean}")
    assert not {name: error for name, error in ours.items() if error > max(BF16_BOUND, 1.2 * theirs[name])}
    assert 0 < mean["ours"] < 1.1 * mean["theirs"]


def test_gpt2_as_it_was_first_published(ids, tmp_path):
    """Without "transformer." before the names, with the masks that old versions saved, and with n_ctx."""
    model = make_model("gpt2")
    model.save_pretrained(tmp_path / "whole")
    tensors = {f"{name}": t.contiguous() for name, t in model.transformer.state_dict().items()}
    for layer in range(model.config.n_layer):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(256, 256).tril().view(1, 1, 256, 256)
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    (tmp_path / "old").mkdir()
    save_file(tensors, tmp_path / "old" / "model.safetensors", metadata={"format": "pt"})
    config = {**json.loads((tmp_path / "whole" / "config.json").read_text()), "n_ctx": 256}
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    assert_close(our_logits(tmp_path / "old", ids, "--save", tmp_path / "ours"), their_logits(tmp_path / "old", ids))
    assert digest(tmp_path / "ours") == digest(tmp_path / "whole")
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["n_ctx"] == 256


def test_first_values_of_gpt2_are_spread_as_theirs(tmp_path):
    """c_proj is narrower by the square root of twice the layers."""
    make_config("gpt2").save_pretrained(tmp_path)
    run_program("random", tmp_path / "config.json", 11, tmp_path / "ours")
    theirs = AutoModelForCausalLM.from_config(make_config("gpt2")).state_dict()
    for name, ours in load_file(tmp_path / "ours" / "model.safetensors").items():
        if ours.dim() == 2:
            assert ours.std().item() == pytest.approx(theirs[name].std().item(), rel=0.1), name
        else:
            assert torch.equal(ours, theirs[name]), name


def test_shards_of_transformers(ids, tmp_path):
    make_model("gqa").save_pretrained(tmp_path, max_shard_size="100KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    assert_close(our_logits(tmp_path, ids), their_logits(tmp_path, ids))


def test_bf16_folder_stays_bf16_and_bf16_arithmetic_is_as_close_as_theirs(ids, tmp_path):
    make_model("gqa_tied").to(torch.bfloat16).save_pretrained(tmp_path / "theirs")
    exact = their_logits(tmp_path / "theirs", ids)
    assert_close(our_logits(tmp_path / "theirs", ids, "--save", tmp_path / "ours"), exact)
    assert digest(tmp_path / "ours") == digest(tmp_path / "theirs")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "ours", dtype="auto").dtype == torch.bfloat16
    error_of_ours = (our_logits(tmp_path / "theirs", ids, "--dtype", "bf16") - exact).norm() / exact.norm()
    error_of_theirs = (their_logits(tmp_path / "theirs", ids, torch.bfloat16) - exact).norm() / exact.norm()
    assert 0 < error_of_ours < 1.2 * error_of_theirs


def test_configuration_of_transformers_4(ids, tmp_path):
    """The same folder with config.json as 4.x writes it: rope_theta and rope_scaling at the top, torch_dtype."""
    make_model("llama3_rope").save_pretrained(tmp_path)
    theirs = their_logits(tmp_path, ids)
    config = json.loads((tmp_path / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["torch_dtype"] = config.pop("dtype")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert_close(our_logits(tmp_path, ids), theirs)


def test_prints_one_error_for_a_damaged_folder(tmp_path):
    make_model("untied").save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    result = subprocess.run([str(PROGRAM), "logits", str(tmp_path)], input=b"{}", capture_output=True, timeout=120)
    assert result.returncode == 1
    assert b"model.safetensors: not a valid safetensors file: truncated" in result.stderr

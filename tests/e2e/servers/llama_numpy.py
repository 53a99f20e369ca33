"""The forward pass of a small Llama folder in numpy: what the model servers of the tests serve. float32 throughout."""

import json
import pathlib

import numpy


def read_safetensors(file):
    """Name → array of a file whose tensors are all F32."""
    raw = pathlib.Path(file).read_bytes()
    header_bytes = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + header_bytes])
    arrays = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise ValueError(f"{file}: {name} is {entry['dtype']}, F32 is expected")
        begin, end = entry["data_offsets"]
        flat = numpy.frombuffer(raw, "<f4", (end - begin) // 4, 8 + header_bytes + begin)
        arrays[name] = flat.reshape(entry["shape"])
    return arrays


def softmax(scores):
    powers = numpy.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


class Llama:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        config = json.loads((folder / "config.json").read_text())
        self.weights = read_safetensors(folder / "model.safetensors")
        self.layers = config["num_hidden_layers"]
        self.heads = config["num_attention_heads"]
        self.kv_heads = config["num_key_value_heads"]
        self.channels = config.get("head_dim") or config["hidden_size"] // self.heads
        self.epsilon = config["rms_norm_eps"]
        self.vocabulary = config["vocab_size"]
        theta = (config.get("rope_parameters") or {}).get("rope_theta") or config.get("rope_theta") or 10000.0
        frequencies = theta ** (-numpy.arange(0, self.channels, 2) / self.channels)
        angles = numpy.outer(numpy.arange(config["max_position_embeddings"]), frequencies)
        angles = numpy.concatenate([angles, angles], -1)
        self.cos, self.sin = numpy.cos(angles).astype("f4"), numpy.sin(angles).astype("f4")

    def norm(self, x, name):
        mean_square = (x * x).mean(-1, keepdims=True)
        return x / numpy.sqrt(mean_square + numpy.float32(self.epsilon)) * self.weights[name + ".weight"]

    def linear(self, x, name):
        return x @ self.weights[name + ".weight"].T

    def split_heads(self, x, heads):
        """[B, T, heads · channels] → [B, heads, T, channels]"""
        return x.reshape(*x.shape[:2], heads, self.channels).transpose(0, 2, 1, 3)

    def rotate(self, x):
        half = self.channels // 2
        turned = numpy.concatenate([-x[..., half:], x[..., :half]], -1)
        return x * self.cos[: x.shape[2]] + turned * self.sin[: x.shape[2]]

    def attention(self, x, prefix):
        q = self.rotate(self.split_heads(self.linear(x, prefix + "q_proj"), self.heads))
        k = self.rotate(self.split_heads(self.linear(x, prefix + "k_proj"), self.kv_heads))
        v = self.split_heads(self.linear(x, prefix + "v_proj"), self.kv_heads)
        shared = self.heads // self.kv_heads
        k, v = numpy.repeat(k, shared, 1), numpy.repeat(v, shared, 1)
        scores = q @ k.transpose(0, 1, 3, 2) / numpy.sqrt(numpy.float32(self.channels))
        scores = scores + numpy.triu(numpy.full(scores.shape[-2:], -numpy.inf, "f4"), 1)
        mixed = (softmax(scores) @ v).transpose(0, 2, 1, 3)
        return self.linear(mixed.reshape(*x.shape[:2], -1), prefix + "o_proj")

    def mlp(self, x, prefix):
        gate = self.linear(x, prefix + "gate_proj")
        return self.linear(gate / (1 + numpy.exp(-gate)) * self.linear(x, prefix + "up_proj"), prefix + "down_proj")

    def logits(self, ids):
        """[B, T] ids → [B, T, V] float32; row t is about the token that follows ids[..t]."""
        ids = numpy.asarray(ids)
        if ids.size and (ids.min() < 0 or ids.max() >= self.vocabulary):
            raise ValueError(f"token id outside the vocabulary of {self.vocabulary}")
        x = self.weights["model.embed_tokens.weight"][ids]
        for layer in range(self.layers):
            prefix = f"model.layers.{layer}."
            x = x + self.attention(self.norm(x, prefix + "input_layernorm"), prefix + "self_attn.")
            x = x + self.mlp(self.norm(x, prefix + "post_attention_layernorm"), prefix + "mlp.")
        x = self.norm(x, "model.norm")
        head = self.weights.get("lm_head.weight", self.weights["model.embed_tokens.weight"])
        return (x @ head.T).astype("f4")

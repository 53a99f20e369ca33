"""Job specs and data of the tests: everything small enough for two cores."""

import copy
import hashlib
import json
import math
import pathlib
import random

BYTE_VOCABULARY = 257
SEQUENCE_LENGTH = 24

WORDS = (
    "the a one old small red stone river house tree bird light road sea wind child king ship sings falls turns "
    "keeps finds breaks opens near under over behind after before with and but so"
).split()


def text_lines(count, seed=1):
    """Sentences with enough structure to learn from."""
    source = random.Random(seed)
    lines = []
    for _ in range(count):
        words = [source.choice(WORDS) for _ in range(source.randrange(6, 14))]
        lines.append(" ".join(words).capitalize() + ".")
    return lines


def write_jsonl(path, documents):
    path = pathlib.Path(path)
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return path


def write_text_data(path, count, seed=1):
    return write_jsonl(path, ({"text": line} for line in text_lines(count, seed)))


def trained_tokens(data, rows_drawn):
    """What a job may count that has trained on so many rows of joined texts: the last row of them is shorter, and its
    padding is not counted. In each epoch it comes once, in one that has only begun perhaps."""
    texts = [json.loads(line)["text"].encode() for line in pathlib.Path(data).read_text().splitlines()]
    tokens = sum(map(len, texts)) + len(texts) - 1  # an end of text between two
    rows, last = divmod(tokens - 1, SEQUENCE_LENGTH)
    padding = SEQUENCE_LENGTH - last if last else 0
    epochs = rows_drawn / (rows + bool(last))
    full = rows_drawn * SEQUENCE_LENGTH
    return {full - math.floor(epochs) * padding, full - math.ceil(epochs) * padding}


def llama_config(hidden, vocabulary=BYTE_VOCABULARY, **changes):
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    }
    return {**config, **changes}


def base_spec(data, output, steps):
    """Plain training of a random student."""
    return {
        "student": {"init": "random", "config": llama_config(32), "dtype": "fp32"},
        "dataset": {"train": str(data), "sequence_length": SEQUENCE_LENGTH},
        "training": {"batch_size": 2, "micro_batches": 4, "max_steps": steps, "learning_rate": 2e-3, "threads": 1},
        "output": str(output),
    }


def distil_spec(data, output, endpoints, steps, top_k=16):
    """Distillation of a random student."""
    spec = base_spec(data, output, steps)
    spec["teacher"] = {
        "endpoints": [endpoints] if isinstance(endpoints, str) else list(endpoints),
        "protocol": "kserve",
        "max_concurrent": 8,
        "timeout_secs": 30,
        "top_k": top_k,
    }
    return spec


def changed(spec, changes):
    """A copy with fields set by JSON pointer; None removes a field."""
    made = copy.deepcopy(spec)
    for pointer, value in changes.items():
        *parents, name = pointer.strip("/").split("/")
        place = made
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is None:
            place.pop(name, None)
        else:
            place[name] = value
    return made


def write_spec(path, spec):
    path = pathlib.Path(path)
    path.write_text(json.dumps(spec, indent=1))
    return path


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def safetensors_entries(path):
    """{name: (dtype, shape, bytes)} straight from the file."""
    raw = pathlib.Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    header.pop("__metadata__", None)
    data = raw[8 + size :]
    return {
        name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()
    }


def left_for_others(folder):
    """{name: bytes} of what a job has left for others."""
    found = {}
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and parts[0] != "checkpoints" and not any(part.startswith(".") for part in parts):
            found["/".join(parts)] = path.read_bytes()
    return found

"""What a job spec with a TorchScript student asks for, computed in PyTorch. Without shuffling, and with a constant
learning rate."""

import pathlib

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from support import jobs


class Classifier(nn.Module):
    """Two outputs: logits of 10 classes, and a hidden tensor."""

    def __init__(self, hidden: int):
        super().__init__()
        self.first = nn.Linear(16, hidden)
        self.last = nn.Linear(hidden, 10)

    def forward(self, x):
        h = torch.tanh(self.first(x))
        return self.last(h), h


def _kl(x, y, temperature):
    p, q = functional.log_softmax(y / temperature, -1), functional.log_softmax(x / temperature, -1)
    return temperature**2 * functional.kl_div(q, p, reduction="none", log_target=True).sum(-1).mean()


LOSSES = {
    "kl": _kl,
    "mse": lambda x, y, _: functional.mse_loss(x, y.to(x.dtype)),
    "mae": lambda x, y, _: functional.l1_loss(x, y.to(x.dtype)),
    "cosine": lambda x, y, _: (1 - functional.cosine_similarity(x, y.to(x.dtype), dim=-1)).mean(),
    "cross_entropy": lambda x, y, _: functional.cross_entropy(x, y),
}


def _load(file, dtype):
    return torch.jit.load(str(file)).to(dtype)


def _named(section, module, batch, dtype):
    """What forward() returns, by the names of the spec."""
    inputs = [batch[name].to(dtype) if batch[name].is_floating_point() else batch[name] for name in section["inputs"]]
    returned = module(*inputs)
    returned = returned if isinstance(returned, tuple) else (returned,)
    return dict(zip(section["outputs"], returned, strict=True))


def _optimizer(student, training):
    parameters = list(student.parameters())
    decay = training.get("weight_decay", 0.0)
    groups = [
        {"params": [one for one in parameters if one.dim() > 1], "weight_decay": decay},
        {"params": [one for one in parameters if one.dim() < 2], "weight_decay": 0.0},
    ]
    if training.get("optimizer") == "sgd":
        return torch.optim.SGD(groups, lr=training["learning_rate"])
    return torch.optim.AdamW(
        groups,
        lr=training["learning_rate"],
        betas=(0.9, training.get("adam_beta2", 0.999)),
        eps=training.get("adam_epsilon", 1e-8),
    )


def trained(spec, dtype, folder="."):
    """The student's parameters by name after the spec's steps, each on its whole batch, and the last step's loss. Paths
    of the spec are relative to the folder."""
    folder, training = pathlib.Path(folder), spec["training"]
    student = _load(folder / spec["student"]["model"], dtype)
    teacher = _load(folder / spec["teacher"]["module"], dtype).eval() if "teacher" in spec else None
    data = load_file(folder / spec["dataset"]["train"])
    count = len(next(iter(data.values())))
    size = training["batch_size"] * training["micro_batches"]
    optimizer = _optimizer(student, training)
    for step in range(training["max_steps"]):
        rows = torch.arange(step * size, (step + 1) * size) % count
        batch = {name: values[rows] for name, values in data.items()}
        known = {f"data.{name}": values for name, values in batch.items()}
        if teacher is not None:
            with torch.no_grad():
                taught = _named(spec["teacher"], teacher, batch, dtype)
            known |= {f"teacher.{name}": values for name, values in taught.items()}
        outputs = _named(spec["student"], student, batch, dtype)
        loss = sum(
            term.get("weight", 1.0)
            * LOSSES[term["kind"]](outputs[term["output"]], known[term["target"]], term.get("temperature", 1.0))
            for term in training["losses"]
        )
        optimizer.zero_grad()
        loss.backward()
        if (limit := training.get("max_grad_norm", 1.0)) > 0:
            nn.utils.clip_grad_norm_(student.parameters(), limit)
        optimizer.step()
    return dict(student.named_parameters()), loss.item()


def in_fp64(spec, folder):
    """The spec with modules that hold fp64 numbers: a result has the file's dtype, and is not rounded then."""
    folder, changes = pathlib.Path(folder), {}
    for section, field in (("student", "model"), ("teacher", "module")):
        if section in spec:
            file = folder / f"{section}-fp64.pt"
            _load(folder / spec[section][field], torch.float64).save(str(file))
            changes |= {f"/{section}/{field}": str(file), f"/{section}/dtype": "fp64"}
    return jobs.changed(spec, changes)


def compare(spec, dtype, tolerance, output, folder="."):
    """Asserts that the run of the spec ended with PyTorch's weights: an error is relative to the maximum of the tensor.
    Returns the last step's loss."""
    wanted, loss = trained(spec, dtype, folder)
    before = dict(_load(pathlib.Path(folder) / spec["student"]["model"], dtype).named_parameters())
    weights = load_file(output / "model.safetensors")
    for name, value in wanted.items():
        largest = value.abs().max()
        moved = ((before[name] - value).abs().max() / largest).item()
        error = ((weights[name].double() - value.double()).abs().max() / largest).item()
        print(f"{name:30} moved {moved:.1e}, differs from PyTorch by {error:.1e}")
        assert weights[name].dtype == dtype and moved > 1e-3 and error < tolerance
    return loss

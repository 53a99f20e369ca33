"""A rank of PyTorch's DistributedDataParallel that trains the student of tests/e2e/test_ranks_ddp.py.

python ddp.py FILE, under torchrun; FILE holds the arguments as JSON. Writes weights and the loss of each step.
"""

import contextlib
import json
import sys

import torch
from safetensors.torch import save_file
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM


def train(of):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    model = AutoModelForCausalLM.from_pretrained(of["model"], dtype=torch.float32)
    trained = DistributedDataParallel(model)
    decays = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decays, "weight_decay": of["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=of["learning_rate"])
    with open(of["data"]) as file:
        rows = [json.loads(line)["input_ids"] for line in file]
    of_rank = of["micro_batches"] // ranks
    losses = []
    for step in range(of["steps"]):
        total = torch.zeros(())
        for index in range(of_rank):
            begin = ((step * ranks + rank) * of_rank + index) * of["batch_size"]
            ids = torch.tensor(rows[begin : begin + of["batch_size"]])
            last = index + 1 == of_rank
            with contextlib.nullcontext() if last else trained.no_sync():
                loss = trained(input_ids=ids, labels=ids).loss / of_rank
                loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), of["max_grad_norm"])
        optimizer.step()
        optimizer.zero_grad()
        torch.distributed.all_reduce(total)
        losses.append(total.item() / ranks)
    if rank == 0:
        save_file({name: tensor.detach().clone() for name, tensor in model.named_parameters()}, of["weights"])
        with open(of["losses"], "w") as file:
            json.dump(losses, file)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with open(sys.argv[1]) as arguments:
        given = json.load(arguments)
    train(given)

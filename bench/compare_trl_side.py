"""TRL's side of compare_trl.py, run by the Python that has TRL: prints one JSON line with its figures.

Uses ServerDistillationTrainer.compute_loss unchanged, over fixed rows in a plain loop with AdamW, without the overhead
of the Trainer around it. compare_trl.py describes the arguments.
"""

import argparse
import json
import pathlib
import sys
import time

import torch
import transformers
import trl.generation.vllm_client as vllm_client
from datasets import Dataset


def make_trainer(arguments):
    # The client only sends requests; its check for the package vllm is meant for the server.
    vllm_client.is_vllm_available = lambda: True
    from trl.experimental.server_distillation import ServerDistillationConfig, ServerDistillationTrainer

    config = ServerDistillationConfig(
        output_dir=arguments.scratch,
        teacher_model_server_url=arguments.url,
        beta=0.0,
        loss_top_k=arguments.top_k,
        loss_add_tail=True,
        temperature=1.0,
        per_device_train_batch_size=arguments.batch_size,
        use_vllm=False,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
    )
    return ServerDistillationTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(arguments.student, dtype=torch.float32),
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "a"}] * arguments.batch_size),
        processing_class=transformers.AutoTokenizer.from_pretrained(arguments.student),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--url", required=True)
    parser.add_argument("--student", required=True, help="model folder")
    parser.add_argument("--rows", required=True, help='JSONL of {"input_ids"}, all of one length')
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warm-up", type=int, required=True, help="first steps that do not count")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--top-k", type=int, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--scratch", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = [json.loads(line)["input_ids"] for line in pathlib.Path(arguments.rows).read_text().splitlines()]
    trainer = make_trainer(arguments)
    model = trainer.model
    model.train()
    trainer.current_gradient_accumulation_steps = 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.learning_rate, weight_decay=0.0)

    asked = 0.0
    ask = trainer.teacher_client.get_sequence_logprobs

    def timed(*positional, **named):
        nonlocal asked
        began = time.perf_counter()
        try:
            return ask(*positional, **named)
        finally:
            asked += time.perf_counter() - began

    trainer.teacher_client.get_sequence_logprobs = timed
    losses = []
    for step in range(arguments.steps):
        if step == arguments.warm_up:
            began, asked = time.perf_counter(), 0.0
        first = step * arguments.batch_size
        ids = torch.tensor([rows[(first + i) % len(rows)] for i in range(arguments.batch_size)])
        inputs = {
            "prompt_ids": ids[:, :1],
            "prompt_mask": torch.ones_like(ids[:, :1]),
            "completion_ids": ids[:, 1:],
            "completion_mask": torch.ones_like(ids[:, 1:]),
        }
        loss = trainer.compute_loss(model, inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    seconds = time.perf_counter() - began
    counted = arguments.steps - arguments.warm_up
    tokens = counted * arguments.batch_size * (len(rows[0]) - 1)
    result = {
        "tokens_per_second": tokens / seconds,
        "share_inside_requests": asked / seconds,
        "last_loss": sum(losses[-10:]) / len(losses[-10:]),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())

"""TRL's side of on-policy distillation, run by the Python that has TRL: prints one JSON line with its steps.

TRL's trainers are used unchanged, with LoRA on all linear modules but the head. `server` (ServerDistillationTrainer)
writes answers with generate() in this process and asks a vLLM server for the teacher's top k; `async`
(AsyncDistillationTrainer) has answers written by a second vLLM server, which gets each step's adapter; `gkd`
(GKDTrainer, lmbda 1) has student and teacher in this process. The clock starts when the first step does. Saving
adapters does not count.
"""

import argparse
import json
import pathlib
import sys
import time

import torch
import transformers
from datasets import Dataset
from peft import LoraConfig


class Clock(transformers.TrainerCallback):
    """Counts the tokens of each step, saves adapters, and ends the run."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.steps = []  # seconds since the start, tokens of the step
        self.tokens = 0
        self.began = self.saving = 0.0

    def on_train_begin(self, arguments, state, control, **_):
        self.began = time.perf_counter()

    def on_step_end(self, arguments, state, control, model=None, **_):
        now = time.perf_counter()
        self.steps.append({"seconds": now - self.began - self.saving, "tokens": self.tokens})
        self.tokens = 0
        if self.arguments.save_every and state.global_step % self.arguments.save_every == 0:
            model.save_pretrained(pathlib.Path(self.arguments.scratch) / "adapters" / str(state.global_step))
        self.saving += time.perf_counter() - now
        if self.steps[-1]["seconds"] > self.arguments.seconds:
            control.should_training_stop = True


def common(arguments):
    return {
        "output_dir": arguments.scratch,
        "per_device_train_batch_size": arguments.batch_size,
        "max_steps": arguments.steps,
        "learning_rate": arguments.learning_rate,
        "lr_scheduler_type": "constant",
        "beta": arguments.beta,
        "temperature": 1.0,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "logging_steps": 1000,
        "report_to": [],
        "seed": arguments.seed,
    }


def server_trainer(arguments, prompts, shared):
    import trl.generation.vllm_client as vllm_client

    # The client only sends requests; its check for the package vllm is meant for the server.
    vllm_client.is_vllm_available = lambda: True
    from trl.experimental.server_distillation import ServerDistillationConfig, ServerDistillationTrainer

    config = ServerDistillationConfig(
        **common(arguments),
        teacher_model_server_url=arguments.teacher,
        max_completion_length=arguments.max_tokens,
        loss_top_k=arguments.top_k,
        loss_add_tail=True,
        use_vllm=False,
    )
    rows = Dataset.from_list([{"prompt": prompt} for prompt in prompts])
    model = transformers.AutoModelForCausalLM.from_pretrained(arguments.student, dtype=torch.float32)
    return ServerDistillationTrainer(model=model, args=config, train_dataset=rows, **shared)


def async_trainer(arguments, prompts, shared):
    from trl.experimental.async_distillation import (
        AsyncDistillationConfig,
        AsyncDistillationTrainer,
        async_distillation_trainer,
        async_rollout_worker,
    )

    async_rollout_worker.is_vllm_available = lambda: True
    # A figure for its log, which it takes from the GPU.
    async_distillation_trainer.get_peak_flops_per_device = lambda *_: None
    config = AsyncDistillationConfig(
        **common(arguments),
        vllm_server_base_url=arguments.rollout,
        teacher_server_urls={"default": arguments.teacher},
        max_completion_length=arguments.max_tokens,
        teacher_top_k=arguments.top_k,
        add_tail_bucket=True,
        max_staleness=arguments.staleness,
        token_budget=0,  # steps of batch_size answers
        # Its default needs a GPU; this attention masks the rows of a packed batch by their positions.
        model_init_kwargs={"attn_implementation": "sdpa"},
    )
    shared["processing_class"].chat_template = "{{ messages[0]['content'] }}"
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": prompt}]} for prompt in prompts])
    return AsyncDistillationTrainer(model=arguments.student, args=config, train_dataset=rows, **shared)


def gkd_trainer(arguments, prompts, shared):
    from trl.experimental.gkd import GKDConfig, GKDTrainer

    tokenizer = shared["processing_class"]
    tokenizer.padding_side = "left"

    def collate(rows):
        read = tokenizer([row["prompt"] for row in rows], padding=True, return_tensors="pt")
        ids, mask = read["input_ids"], read["attention_mask"]
        labels = torch.full_like(ids, -100)
        return {
            "prompts": ids,
            "prompt_attention_mask": mask,
            "input_ids": ids,
            "attention_mask": mask,
            "labels": labels,
        }

    config = GKDConfig(**common(arguments), lmbda=1.0, max_new_tokens=arguments.max_tokens)
    models = [
        transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        for folder in (arguments.student, arguments.teacher)
    ]
    rows = Dataset.from_list([{"prompt": prompt} for prompt in prompts])
    trainer = GKDTrainer(*models, args=config, train_dataset=rows, data_collator=collate, **shared)
    trainer.model_accepts_loss_kwargs = False  # or the loss is divided by the tokens of the dataset's own answers: none
    return trainer


TRAINERS = {"server": server_trainer, "async": async_trainer, "gkd": gkd_trainer}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("trainer", choices=TRAINERS)
    parser.add_argument("--student", required=True, help="model folder")
    parser.add_argument("--teacher", required=True, help="URL of a vLLM server; for gkd a model folder")
    parser.add_argument("--rollout", help="URL of the vLLM server that writes answers, for async")
    parser.add_argument("--prompts", required=True, help='JSONL of {"prompt"}')
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after the step that passes them")
    parser.add_argument("--save-every", type=int, default=0, help="steps between two adapters in SCRATCH/adapters")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--beta", type=float, default=0.0)
    parser.add_argument("--top-k", type=int, default=16)
    parser.add_argument("--staleness", type=int, default=4)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    lines = pathlib.Path(arguments.prompts).read_text(encoding="utf-8").splitlines()
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.student)
    tokenizer.pad_token = tokenizer.eos_token
    clock = Clock(arguments)
    lora = LoraConfig(
        r=arguments.rank, lora_alpha=2 * arguments.rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    shared = {"processing_class": tokenizer, "peft_config": lora, "callbacks": [clock]}
    trainer = TRAINERS[arguments.trainer](arguments, [json.loads(line)["prompt"] for line in lines], shared)
    # The trainer's own callbacks begin servers and workers: the clock comes after them.
    trainer.remove_callback(clock)
    trainer.add_callback(clock)
    losses = []
    compute = trainer.compute_loss

    def counted(model, inputs, *positional, **named):
        loss = compute(model, inputs, *positional, **named)
        mask = inputs["labels"] != -100 if "labels" in inputs else inputs["completion_mask"]
        clock.tokens += int(mask.sum())
        losses.append((loss[0] if isinstance(loss, tuple) else loss).item())
        return loss

    trainer.compute_loss = counted
    trainer.train()
    print("\n" + json.dumps({"steps": clock.steps, "last_loss": sum(losses[-10:]) / len(losses[-10:])}))


if __name__ == "__main__":
    sys.exit(main())

#include "api/spec_fields.hpp"

#include <algorithm>
#include <stdexcept>

#include "api/section_fields.hpp"
#include "api/spec_rules.hpp"
#include "pipeline/core/automatic_batch.hpp"
#include "pipeline/core/ranks/rank_rules.hpp"

namespace distilld::api {
namespace {

constexpr std::uint64_t kMaxSteps = 1'000'000'000'000;

constexpr TextForm kNameForm{
    .pattern = "[A-Za-z0-9][A-Za-z0-9 ._:-]*",
    .values = "1–128 letters, digits, spaces and `. _ - :`",
    .complaint = "must begin with a letter or digit and consist of letters, digits, spaces and . _ - :",
};

std::vector<SpecSection> sections() {
    return {
        {.pointer = "/student",
         .required = "an object with model (a Hugging Face folder)",
         .needed_by = NeededBy::training},
        {.pointer = "/student/lora",
         .open = [](JobSpec& spec) { spec.student.lora.emplace(); },
         .present = [](const JobSpec& spec) { return spec.student.lora.has_value(); },
         .help = "train low-rank adapters (LoRA, as in PEFT) beside the frozen weights of `model` "
                 "(docs/students.md); `{}` takes the defaults"},
        {.pointer = "/teacher",
         .open = [](JobSpec& spec) { spec.teachers.try_emplace(""); },
         .present = [](const JobSpec& spec) { return spec.teacher() != nullptr; }},
        {.pointer = "/teachers",
         .present = [](const JobSpec& spec) { return spec.names_teachers(); },
         .members_as = "/teacher",
         .help = "several teachers by name, instead of `teacher`: a row of the data names its teacher (`\"teacher\": "
                 "NAME`; without, `default`'s)"},
        {.pointer = "/dataset",
         .required = "an object with train (a JSONL file) and sequence_length",
         .needed_by = NeededBy::data},
        {.pointer = "/rollout",
         .open = [](JobSpec& spec) { spec.rollout.emplace(); },
         .present = [](const JobSpec& spec) { return spec.rollout.has_value(); },
         .help = "train on answers that the student itself writes to `prompts`, and the teacher grades "
                 "(docs/on-policy.md); replaces `dataset.train`"},
        {.pointer = "/training",
         .required = "an object with at least max_steps or epochs",
         .exactly_one = {kRunLength.begin(), kRunLength.end()},
         .needed_by = NeededBy::training},
        {.pointer = "/eval"},
        {.pointer = "/checkpoint"},
        {.pointer = "/metrics"},
        {.pointer = "/placement",
         .open = [](JobSpec& spec) { spec.placement.emplace(); },
         .present = [](const JobSpec& spec) { return spec.placement.has_value(); },
         .help = "what the job gets from a cluster (docs/cluster.md); without it, one node and one core per thread"},
    };
}

using enum DecidesWeights::Answer;

std::vector<SpecField> document_fields() {
    return {
        {.pointer = "/name",
         .kind = make_text(&JobSpec::name, {.max_bytes = kMaxJobName, .form = &kNameForm}),
         .decides_weights = no,
         .help = "display name of the job"},
        {.pointer = "/kind",
         .kind = make_choice(&JobSpec::kind, kEnumNames<JobKind>),
         .decides_weights = no,
         .help = "train a student, or generate: write the teacher's answers for the dataset into `teacher.store`. A "
                 "generate job takes `teacher`, `dataset`, and the tokenizer and vocabulary of `student`"},
        {.pointer = "/tasks",
         .kind = make_integer_or_auto(&JobSpec::tasks, &JobSpec::tasks_auto, {1, kMaxTasks}),
         .decides_weights = no,
         .help = "of a generate job: jobs of a service that fill the store together (docs/cluster.md). `auto`: one per "
                 "idle node of the cluster, or per free slot. Without a service, it is one process"},
    };
}

/// The fields after the sections.
std::vector<SpecField> last_document_fields() {
    return {
        {.pointer = "/output",
         .kind = make_path(&JobSpec::output, PathUse::writes, "folder"),
         .decides_weights = no,
         .help = "folder for the trained student, with its checkpoints in `checkpoints/`; not the folder of "
                 "`student.model`. Two unfinished jobs of one service cannot share it or write into each other's. For "
                 "a generate job it is the store",
         .required = "the folder for the trained student",
         .needed_by = NeededBy::training,
         .also_known_as = {"output_dir"}},
        {.pointer = "/resume",
         .kind = make_boolean(&JobSpec::resume),
         .decides_weights = no,
         .help = "continue from the newest checkpoint of the same run, if there is one; false: start over, which is "
                 "refused if there are checkpoints, unless `overwrite` is true",
         .also_known_as = {"resume_from_checkpoint"}},
        {.pointer = "/overwrite",
         .kind = make_boolean(&JobSpec::overwrite),
         .decides_weights = no,
         .help = "replace the checkpoints and the model of another run in `output`; without it they are never touched",
         .also_known_as = {"overwrite_output_dir"}},
    };
}

std::vector<SpecField> dataset_fields() {
    return {
        {.pointer = "/dataset/format",
         .kind = make_choice(&DatasetSpec::format, kEnumNames<DataFormat>),
         .decides_weights = yes,
         .help = "jsonl: texts or token ids; tensors: safetensors files of samples, for a TorchScript student "
                 "(docs/any-network.md)"},
        // The checkpoint holds a hash of the rows, so the file may have moved.
        {.pointer = "/dataset/train",
         .kind = make_paths(&DatasetSpec::train, PathUse::reads, "data file or pattern", kMaxDatasetFiles),
         .decides_weights = no,
         .help = "JSONL to train on, plain or packed with gzip or zstd, in the order given; a pattern (`data/*.jsonl`) "
                 "means the matching files, sorted by name. docs/data.md describes the lines. With `format` tensors: "
                 "safetensors files",
         .required = "the JSONL file to train on",
         .needed_by = NeededBy::data,
         .there = Named::file,
         .also_known_as = {"train_dataset", "train_file", "dataset_name"}},
        {.pointer = "/dataset/eval",
         .kind = make_paths(&DatasetSpec::eval, PathUse::reads, "data file or pattern", kMaxDatasetFiles),
         .decides_weights = no,
         .help = "held-out JSONL, in the same form as `train`",
         .there = Named::file,
         .also_known_as = {"eval_dataset", "validation_file"}},
        {.pointer = "/dataset/eval_rows",
         .kind = make_integer(&DatasetSpec::eval_rows, {0, 1ULL << 50}),
         .decides_weights = no,
         .help = "older name of `eval.max_rows`",
         .default_note = "= all"},
        {.pointer = "/dataset/sequence_length",
         .kind = make_integer(&DatasetSpec::sequence_length, {1, 1U << 20}),
         .decides_weights = yes,
         .help = "length of a row, in input positions; with `format` tensors it is 1",
         .required = "input positions of a row, at least 1",
         .needed_by = NeededBy::tokens,
         .also_known_as = {"max_length", "max_seq_length", "max_seq_len", "block_size", "cutoff_len"}},
        // The checkpoint holds a hash of the resulting rows.
        {.pointer = "/dataset/teacher_sequence_length",
         .kind = make_integer(&DatasetSpec::teacher_sequence_length, {0, 1U << 20}),
         .decides_weights = no,
         .help = "maximum input positions that the teacher reads of a document with a `teacher_prompt` or "
                 "`teacher_input_ids` (docs/data.md)",
         .default_note = "= `sequence_length`"},
        {.pointer = "/dataset/packing",
         .kind = make_choice_or_boolean(&DatasetSpec::packing, kEnumNames<Packing>, Packing::joined, Packing::off),
         .decides_weights = yes,
         .help =
             "true: documents are joined end to end and cut into rows; `documents`: whole documents share a row, and "
             "each is read by itself; false: one document per row, rows of similar length together (docs/packing.md)"},
        // The checkpoint holds a hash of the resulting rows.
        {.pointer = "/dataset/overflow",
         .kind = make_choice(&DatasetSpec::overflow, kOverflowNames),
         .decides_weights = no,
         .help = "what happens to documents longer than a row (`packing` `documents` or false): split them into rows "
                 "that are read by themselves, truncate them, or refuse the job (error); see docs/packing.md",
         .default_note = "split with `packing` `documents`, truncate with false"},
        {.pointer = "/dataset/cache",
         .kind = make_boolean(&DatasetSpec::cache),
         .decides_weights = no,
         .help =
             "keep the tokens of large files in `.cache` of `output`, and map them at the next start (docs/data.md)"},
        {.pointer = "/dataset/completion_only_loss",
         .kind = make_boolean(&DatasetSpec::completion_only_loss),
         .decides_weights = yes,
         .help = "train on the completion of `{\"prompt\", \"completion\"}` and Alpaca lines only; false: on the "
                 "prompt too",
         .also_known_as = {"assistant_only_loss", "train_on_inputs"}},
        {.pointer = "/dataset/shuffle",
         .kind = make_choice(&DatasetSpec::shuffle, kEnumNames<Shuffle>),
         .decides_weights = yes,
         .help = "order of the rows in an epoch. full: at random, by `training.seed`; blocks: one shuffled block after "
                 "the other, so that a student can follow the writer of its store; off: as in the files"},
        {.pointer = "/dataset/shuffle_block_rows",
         .kind = make_integer(&DatasetSpec::shuffle_block_rows, {1, 1ULL << 40}),
         .decides_weights = yes,
         .help = "rows per block, for `shuffle` blocks"},
    };
}

std::vector<SpecField> training_fields() {
    return {
        {.pointer = "/training/parallel",
         .kind = make_boolean(&TrainingSpec::parallel),
         .decides_weights = no,
         .help = "false: the same graph with one request at a time and no overlap"},
        {.pointer = "/training/overlap_optimizer",
         .kind = make_boolean(&TrainingSpec::overlap_optimizer),
         .decides_weights = no,
         .help = "update layer by layer before the next forward; same bits either way"},
        {.pointer = "/training/batch_size",
         .kind = make_integer_or_auto(&TrainingSpec::batch_size, &TrainingSpec::batch_size_auto, {1, 65536}),
         .decides_weights = yes,
         .help = "sequences per micro-batch; a step sees batch_size × micro_batches. `auto`: by memory and rows "
                 "(docs/training.md)",
         .also_known_as = {"per_device_train_batch_size", "micro_batch_size", "train_batch_size"}},
        {.pointer = "/training/micro_batches",
         .kind = make_integer_or_auto(&TrainingSpec::micro_batches, &TrainingSpec::micro_batches_auto, {1, 65536}),
         .decides_weights = yes,
         .help = "micro-batches per optimizer step. `auto`: by the rows (docs/training.md)",
         .also_known_as = {"gradient_accumulation_steps", "accumulate_grad_batches"}},
        // From 2 on, the number does not matter: each replica computes on one thread.
        {.pointer = "/training/replicas",
         .kind = make_integer_or_auto(&TrainingSpec::replicas, &TrainingSpec::replicas_auto, {1, kMaxReplicas}),
         .decides_weights = last_bits,
         .help = "micro-batches of a step that train at once, each on one thread; 1: one after the other on `threads`. "
                 "`auto`: one per thread for small networks on a CPU, otherwise 1 (docs/training.md)"},
        {.pointer = "/training/gradient_groups",
         .kind = make_integer(&TrainingSpec::gradient_groups, {1, 1024}),
         .decides_weights = last_bits,
         .help = "groups that a step's micro-batches form: gradients are summed within each group, and then over the "
                 "groups by a fixed tree (docs/training.md)"},
        {.pointer = "/training/ranks",
         .kind = make_integer(&TrainingSpec::ranks, {1, kMaxRanks}),
         .decides_weights = no,
         .help = "worker processes on this machine that share the micro-batches of each step, with the same bits for "
                 "every number. `gradient_groups` must be a multiple (docs/ranks.md)"},
        {.pointer = "/training/shard_optimizer",
         .kind = make_boolean(&TrainingSpec::shard_optimizer),
         .decides_weights = no,
         .help = "each rank keeps the optimizer's state of a part of the layers, updates them, and sends the others "
                 "their weights; same bits either way (docs/ranks.md)"},
        // The length determines the learning rate schedule, but a run may be prolonged.
        {.pointer = "/training/max_steps",
         .kind = make_integer(&TrainingSpec::max_steps, {1, kMaxSteps}),
         .decides_weights = no,
         .help = "optimizer steps",
         .default_note = "this or `epochs` is required"},
        {.pointer = "/training/epochs",
         .kind = make_number(&TrainingSpec::epochs, {.max = 1e6, .ends = Ends::open_min}),
         .decides_weights = no,
         .help = "passes over the data; each trains on every row once, and its last step is smaller if the rows do not "
                 "divide evenly",
         .default_note = "this or `max_steps` is required",
         .also_known_as = {"num_train_epochs", "num_epochs"}},
        {.pointer = "/training/learning_rate",
         .kind = make_number(&TrainingSpec::learning_rate, {.max = 100}),
         .decides_weights = yes,
         .help = "peak learning rate",
         .also_known_as = {"lr"}},
        {.pointer = "/training/lr_scheduler_type",
         .kind = make_choice(&TrainingSpec::lr_scheduler_type, kEnumNames<LrScheduler>),
         .decides_weights = yes,
         .help = "decay of the learning rate after the warm-up",
         .also_known_as = {"lr_scheduler", "scheduler"}},
        {.pointer = "/training/warmup_steps",
         .kind = make_integer(&TrainingSpec::warmup_steps, {0, kMaxSteps}),
         .decides_weights = yes,
         .help = "steps over which the learning rate rises to its peak; fewer than the run has"},
        {.pointer = "/training/warmup_ratio",
         .kind = make_number(&TrainingSpec::warmup_ratio, {.ends = Ends::open_max}),
         .decides_weights = yes,
         .help = "the warm-up as a share of all steps, rounded up; `warmup_steps` above 0 takes precedence, as in "
                 "transformers"},
        {.pointer = "/training/weight_decay",
         .kind = make_number(&TrainingSpec::weight_decay, {.max = 100}),
         .decides_weights = yes,
         .help =
             "weight decay of matrices: decoupled with AdamW, added to the gradient with sgd, as in torch.optim.SGD"},
        {.pointer = "/training/max_grad_norm",
         .kind = make_number(&TrainingSpec::max_grad_norm, {.max = 1e9}),
         .decides_weights = yes,
         .help = "norm of all gradients above which they are scaled down",
         .default_note = "(0 = no clipping)",
         .also_known_as = {"gradient_clipping", "grad_clip", "clip_grad_norm", "gradient_clip_val"}},
        {.pointer = "/training/adam_beta1",
         .kind = make_number(&TrainingSpec::adam_beta1, {.ends = Ends::open_max}),
         .decides_weights = yes,
         .help = "decay of the running mean of the gradients"},
        {.pointer = "/training/adam_beta2",
         .kind = make_number(&TrainingSpec::adam_beta2, {.ends = Ends::open_max}),
         .decides_weights = yes,
         .help = "decay of the running mean of the squared gradients"},
        {.pointer = "/training/adam_epsilon",
         .kind = make_number(&TrainingSpec::adam_epsilon, {.ends = Ends::open_min}),
         .decides_weights = yes,
         .help = "added to the square root of that mean"},
        {.pointer = "/training/optimizer",
         .kind = make_choice(&TrainingSpec::optimizer, kEnumNames<OptimizerKind>),
         .decides_weights = yes,
         .help = "adamw_8bit keeps moments in 2 bytes per parameter instead of 8 (blocks of 256, as bitsandbytes; the "
                 "embedding and tensors below 4,096 numbers stay in 32 bits); sgd keeps none, or 4 bytes with "
                 "`sgd_momentum`",
         .also_known_as = {"optim"}},
        {.pointer = "/training/sgd_momentum",
         .kind = make_number(&TrainingSpec::sgd_momentum, {.ends = Ends::open_max}),
         .decides_weights = yes,
         .help = "momentum of `optimizer` sgd"},
        {.pointer = "/training/gradient_checkpointing",
         .kind = make_boolean(&TrainingSpec::gradient_checkpointing),
         .decides_weights = no,
         .help = "keep only the input of each layer for the backward pass, and compute the layer again: less memory, "
                 "about a third more time, the same bits"},
        {.pointer = "/training/temperature",
         .kind = make_number(&TrainingSpec::temperature, {.max = 1000, .ends = Ends::open_min}),
         .decides_weights = yes,
         .help = "T: logits of teacher and student are divided by it"},
        {.pointer = "/training/kd_ratio",
         .kind = make_number(&TrainingSpec::kd_ratio, {}),
         .decides_weights = yes,
         .help = "loss = (1 − kd_ratio)·CE + kd_ratio·T²·D, D by `beta`; above 0 needs a teacher",
         .default_note = "with a teacher, 0 without",
         .default_depends = true,
         .also_known_as = {"alpha_kd", "distillation_alpha"}},
        {.pointer = "/training/beta",
         .kind = make_number(&TrainingSpec::beta, {}),
         .decides_weights = yes,
         .help = "divergence of the student from the teacher, as TRL's beta: 0 forward KL(teacher ‖ student), 1 "
                 "reverse KL, between them the generalized Jensen-Shannon divergence (docs/losses.md)"},
        {.pointer = "/training/losses",
         .kind = loss_terms_kind(),
         .decides_weights = yes,
         .help = "of a TorchScript student: the terms of its loss. Each compares an output with an output of the "
                 "teacher or a tensor of the data (docs/any-network.md)"},
        {.pointer = "/training/max_nonfinite_steps",
         .kind = make_integer(&TrainingSpec::max_nonfinite_steps, {1, kMaxSteps}),
         .decides_weights = no,
         .help = "the job fails after so many steps in a row without a finite loss or gradient norm; each of them is "
                 "skipped"},
        {.pointer = "/training/seed",
         .kind = make_integer(&TrainingSpec::seed, {}),
         .decides_weights = yes,
         .help = "seed of the row order and of new weights",
         .also_known_as = {"random_seed", "data_seed"}},
        // The number of threads determines how libtorch splits its sums.
        {.pointer = "/training/threads",
         .kind = make_integer(&TrainingSpec::threads, {0, 4096}),
         .decides_weights = last_bits,
         .help = "threads that compute",
         .default_note = "= all cores of the slot"},
        {.pointer = "/training/decode_threads",
         .kind = make_integer(&TrainingSpec::decode_threads, {0, 1024}),
         .decides_weights = no,
         .help = "threads that decode the teacher's answers",
         .default_note = "= half the cores, at least one"},
        {.pointer = "/training/logging_steps",
         .kind = make_integer(&TrainingSpec::logging_steps, {1, kMaxSteps}),
         .decides_weights = no,
         .help = "steps between two lines of figures"},
        {.pointer = "/training/eval_steps",
         .kind = make_integer(&TrainingSpec::eval_steps, {0, kMaxSteps}),
         .decides_weights = no,
         .help = "steps between two evaluations",
         .default_note = "= at the end only"},
    };
}

std::vector<SpecField> checkpoint_fields() {
    return {
        {.pointer = "/checkpoint/every_steps",
         .kind = make_integer(&CheckpointSpec::every_steps, {0, kMaxSteps}),
         .decides_weights = no,
         .help = "steps between two checkpoints; one is always written when a run is interrupted, and one at the end, "
                 "before the last evaluation",
         .default_note = "= by time only",
         .also_known_as = {"save_steps"}},
        {.pointer = "/checkpoint/every_secs",
         .kind = make_seconds(&CheckpointSpec::every_secs, {.max = 1e9}),
         .decides_weights = no,
         .help = "seconds of training between two checkpoints; with `every_steps`, whichever comes first",
         .default_note = "(0 = by steps only)"},
        {.pointer = "/checkpoint/keep",
         .kind = make_integer(&CheckpointSpec::keep, {1, 1000}),
         .decides_weights = no,
         .help = "newest checkpoints to keep on disk",
         .also_known_as = {"save_total_limit"}},
        {.pointer = "/checkpoint/dir",
         .kind = make_path(&CheckpointSpec::dir, PathUse::writes, "folder", true),
         .decides_weights = no,
         .help = "folder for the checkpoints",
         .default_note = "`checkpoints/` in `output`"},
    };
}

// These fields only report on a run and do not affect it.
std::vector<SpecField> metrics_fields() {
    return {
        {.pointer = "/metrics/tensorboard_dir",
         .kind = make_path(&MetricsSpec::tensorboard_dir, PathUse::writes, "folder", true),
         .decides_weights = no,
         .help = "folder for TensorBoard event files, one file per run"},
        {.pointer = "/metrics/jsonl_file",
         .kind = make_path(&MetricsSpec::jsonl_file, PathUse::writes, "file", true),
         .decides_weights = no,
         .help = "file for the metrics of each step, evaluation and checkpoint, one JSON object per line; one file per "
                 "run"},
        {.pointer = "/metrics/mlflow_url",
         .kind = make_url(&MetricsSpec::mlflow_url),
         .decides_weights = no,
         .help = "MLflow tracking server that the run is logged to"},
        {.pointer = "/metrics/otlp_url",
         .kind = make_url(&MetricsSpec::otlp_url),
         .decides_weights = no,
         .help = "OpenTelemetry collector (OTLP/HTTP) that gets the spans of the stages",
         .default_note = "as `OTEL_EXPORTER_OTLP_ENDPOINT` says, else none"},
    };
}

}  // namespace

const SpecTable& spec_table() {
    static const SpecTable table = [] {
        SpecTable made{sections(), {}};
        for (const auto rows :
             {document_fields, student_fields, teacher_fields, dataset_fields, rollout_fields, training_fields,
              eval_fields, checkpoint_fields, metrics_fields, placement_fields, last_document_fields}) {
            std::ranges::move(rows(), std::back_inserter(made.fields));
        }
        return made;
    }();
    return table;
}

}  // namespace distilld::api

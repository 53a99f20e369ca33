#include "api/spec_fields.hpp"

#include <algorithm>
#include <stdexcept>

#include "api/spec_rules.hpp"
#include "api/teacher_fields.hpp"

namespace distilld::api {
namespace {

constexpr std::uint64_t kMaxSteps = 1'000'000'000'000;

constexpr TextForm kNameForm{
    .pattern = "[A-Za-z0-9][A-Za-z0-9 ._:-]*",
    .values = "1–128 letters, digits, spaces and `. _ - :`",
    .complaint = "must begin with a letter or digit and consist of letters, digits, spaces and . _ - :",
};
constexpr TextForm kDeviceForm{
    .pattern = "auto|cpu|cuda(:(0|[1-9][0-9]?))?",
    .values = "`\"auto\"`, `\"cpu\"`, `\"cuda\"`, `\"cuda:n\"`",
    .complaint = "must be \"auto\", \"cpu\", \"cuda\" or \"cuda:n\" with n from 0 to 99",
};

std::vector<SpecSection> sections() {
    return {
        {.pointer = "/student",
         .required = "an object with model (a Hugging Face folder)",
         .needed_by = NeededBy::training},
        {.pointer = "/teacher",
         .open = [](JobSpec& spec) { spec.teacher.emplace(); },
         .present = [](const JobSpec& spec) { return spec.teacher.has_value(); }},
        {.pointer = "/teachers",
         .present = [](const JobSpec& spec) { return !spec.teachers.empty(); },
         .members_as = "/teacher",
         .help = "several teachers by name, instead of `teacher`: a row of the data says whose it is (`\"teacher\": "
                 "NAME`; without, `default`'s)"},
        {.pointer = "/dataset", .required = "an object with train (a JSONL file) and sequence_length"},
        {.pointer = "/training",
         .required = "an object with at least max_steps or epochs",
         .exactly_one = {kRunLength.begin(), kRunLength.end()},
         .needed_by = NeededBy::training},
        {.pointer = "/checkpoint"},
        {.pointer = "/metrics"},
    };
}

using enum DecidesWeights::Answer;

std::vector<SpecField> document_fields() {
    return {
        {.pointer = "/name",
         .kind = make_text(&JobSpec::name, {.max_bytes = 128, .form = &kNameForm}),
         .decides_weights = no,
         .help = "what people call the job"},
        {.pointer = "/kind",
         .kind = make_choice(&JobSpec::kind, kJobKindNames),
         .decides_weights = no,
         .help = "train a student, or generate: write what the teacher says of the dataset into `teacher.store`, which "
                 "takes `teacher` and `dataset` and no more"},
    };
}

/// The fields that stand behind the sections.
std::vector<SpecField> last_document_fields() {
    return {
        {.pointer = "/output",
         .kind = make_path(&JobSpec::output, "folder"),
         .decides_weights = no,
         .help =
             "takes the trained student; checkpoints go to `checkpoints/` in it. Not the folder of `student.model`; "
             "no two unfinished jobs of one service may share it. Of a generate job it is the store",
         .required = "the folder that takes the trained student",
         .needed_by = NeededBy::training},
        {.pointer = "/resume",
         .kind = make_boolean(&JobSpec::resume),
         .decides_weights = no,
         .help = "go on from the newest checkpoint where there is one of the same run; false: from the start, which is "
                 "refused where there are checkpoints, unless `overwrite`"},
        {.pointer = "/overwrite",
         .kind = make_boolean(&JobSpec::overwrite),
         .decides_weights = no,
         .help = "replace the checkpoints and the model of another run in `output`; without it they are never touched"},
    };
}

// Of the network a checkpoint holds itself what decides: its config and its weights. So the folder that a run started
// from may have moved.
std::vector<SpecField> student_fields() {
    return {
        {.pointer = "/student/model",
         .kind = make_path(&StudentSpec::model, "Hugging Face folder"),
         .decides_weights = first_weights,
         .help = "the network to train",
         .default_note = "required, unless `init` is `\"random\"` and `config` is given"},
        {.pointer = "/student/init",
         .kind = make_choice(&StudentSpec::init, kStudentInitNames),
         .decides_weights = first_weights,
         .help = "keep the folder's weights, or draw new ones"},
        {.pointer = "/student/config",
         .kind = make_object(&StudentSpec::config_json),
         .decides_weights = no,
         .help = "fields of a Llama `config.json`, laid over the folder's"},
        // The checkpoint holds a hash of the ids that the text came to.
        {.pointer = "/student/tokenizer",
         .kind = make_path(&StudentSpec::tokenizer, "folder", true),
         .decides_weights = no,
         .help = "whose tokenizer.json (of type BPE, see docs/tokenizers.md) reads `{\"text\"}` rows and goes into "
                 "`output`. Without it and without one in `model`, text is read byte by byte, which takes a student "
                 "with a vocabulary of 257",
         .default_note = "that of `model`"},
        {.pointer = "/student/dtype",
         .kind = make_choice(&StudentSpec::dtype, kDtypeNames),
         .decides_weights = yes,
         .help = "bf16 = fp32 master weights, bf16 arithmetic; auto takes it where the device is fast at it"},
        // Another device computes the same sums in another order, as another number of threads does; a run must be
        // able to go on where there is no GPU, or another one. The warning stands for dtype auto too, which may come
        // out otherwise there.
        {.pointer = "/student/device",
         .kind = make_text(&StudentSpec::device, {.max_bytes = 16, .form = &kDeviceForm}),
         .decides_weights = last_bits,
         .help = "where the student is trained; auto takes CUDA where it is there. `cuda:n` is the n-th GPU, from 0"},
    };
}

std::vector<SpecField> dataset_fields() {
    return {
        // The checkpoint holds a hash of the rows, so the file may have moved.
        {.pointer = "/dataset/train",
         .kind = make_paths(&DatasetSpec::train, "JSONL file", kMaxDatasetFiles),
         .decides_weights = no,
         .help = "trained on",
         .required = "the JSONL file to train on"},
        {.pointer = "/dataset/eval",
         .kind = make_paths(&DatasetSpec::eval, "JSONL file", kMaxDatasetFiles),
         .decides_weights = no,
         .help = "held out"},
        {.pointer = "/dataset/eval_rows",
         .kind = make_integer(&DatasetSpec::eval_rows, {0, 1ULL << 50}),
         .decides_weights = no,
         .help = "rows of `eval` that are evaluated, from the first",
         .default_note = "= all"},
        {.pointer = "/dataset/sequence_length",
         .kind = make_integer(&DatasetSpec::sequence_length, {1, 1U << 20}),
         .decides_weights = yes,
         .help = "input positions of a row",
         .required = "input positions of a row, at least 1"},
        {.pointer = "/dataset/packing",
         .kind = make_choice_or_boolean(&DatasetSpec::packing, kPackingNames, Packing::joined, Packing::off),
         .decides_weights = yes,
         .help = "documents joined end to end and cut into rows (true); whole ones side by side in a row, each read by "
                 "itself (`documents`); or one a row, rows of like lengths together (false): see docs/packing.md"},
        {.pointer = "/dataset/shuffle",
         .kind = make_choice(&DatasetSpec::shuffle, kShuffleNames),
         .decides_weights = yes,
         .help =
             "order of the rows in an epoch: any, by `training.seed`; blocks, each shuffled, one after the other, so "
             "that a student keeps up with the writer of its store; or as they stand"},
        {.pointer = "/dataset/shuffle_block_rows",
         .kind = make_integer(&DatasetSpec::shuffle_block_rows, {1, 1ULL << 40}),
         .decides_weights = yes,
         .help = "rows of a block of `shuffle`"},
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
         .help = "sequences of one micro-batch; a step sees batch_size × micro_batches"},
        {.pointer = "/training/micro_batches",
         .kind = make_integer(&TrainingSpec::micro_batches, {1, 65536}),
         .decides_weights = yes,
         .help = "micro-batches of one optimizer step"},
        // The length decides the schedule of the learning rate, but a run may be prolonged.
        {.pointer = "/training/max_steps",
         .kind = make_integer(&TrainingSpec::max_steps, {1, kMaxSteps}),
         .decides_weights = no,
         .help = "optimizer steps",
         .default_note = "this or `epochs` is required"},
        {.pointer = "/training/epochs",
         .kind = make_number(&TrainingSpec::epochs, {.max = 1e6, .ends = Ends::open_min}),
         .decides_weights = no,
         .help = "passes over the data",
         .default_note = "this or `max_steps` is required"},
        {.pointer = "/training/learning_rate",
         .kind = make_number(&TrainingSpec::learning_rate, {.max = 100}),
         .decides_weights = yes,
         .help = "peak"},
        {.pointer = "/training/lr_scheduler_type",
         .kind = make_choice(&TrainingSpec::lr_scheduler_type, kLrSchedulerNames),
         .decides_weights = yes,
         .help = "how the learning rate falls after the warm-up"},
        {.pointer = "/training/warmup_steps",
         .kind = make_integer(&TrainingSpec::warmup_steps, {0, kMaxSteps}),
         .decides_weights = yes,
         .help = "steps over which the learning rate rises to its peak"},
        {.pointer = "/training/weight_decay",
         .kind = make_number(&TrainingSpec::weight_decay, {.max = 100}),
         .decides_weights = yes,
         .help = "decoupled, as AdamW's"},
        {.pointer = "/training/max_grad_norm",
         .kind = make_number(&TrainingSpec::max_grad_norm, {.max = 1e9}),
         .decides_weights = yes,
         .help = "norm of all gradients above which they are scaled down",
         .default_note = "(0 = no clipping)"},
        {.pointer = "/training/adam_beta1",
         .kind = make_number(&TrainingSpec::adam_beta1, {.ends = Ends::open_max}),
         .decides_weights = yes,
         .help = "decay of the mean of the gradients"},
        {.pointer = "/training/adam_beta2",
         .kind = make_number(&TrainingSpec::adam_beta2, {.ends = Ends::open_max}),
         .decides_weights = yes,
         .help = "decay of the mean of their squares"},
        {.pointer = "/training/adam_epsilon",
         .kind = make_number(&TrainingSpec::adam_epsilon, {.ends = Ends::open_min}),
         .decides_weights = yes,
         .help = "added to the root of the mean of the squares"},
        {.pointer = "/training/temperature",
         .kind = make_number(&TrainingSpec::temperature, {.max = 1000, .ends = Ends::open_min}),
         .decides_weights = yes,
         .help = "T: logits of teacher and student are divided by it"},
        {.pointer = "/training/kd_ratio",
         .kind = make_number(&TrainingSpec::kd_ratio, {}),
         .decides_weights = yes,
         .help = "loss = (1 − kd_ratio)·CE + kd_ratio·T²·KL; above 0 needs a teacher",
         .default_note = "with a teacher, 0 without",
         .default_depends = true},
        {.pointer = "/training/beta",
         .kind = make_number(&TrainingSpec::beta, {.only = Supported{0, "forward KL"}}),
         .decides_weights = yes,
         .help = "0 is forward KL; others are refused for now"},
        {.pointer = "/training/max_nonfinite_steps",
         .kind = make_integer(&TrainingSpec::max_nonfinite_steps, {1, kMaxSteps}),
         .decides_weights = no,
         .help = "so many steps in a row whose loss or gradient norm is not finite fail the job; each is skipped"},
        {.pointer = "/training/seed",
         .kind = make_integer(&TrainingSpec::seed, {}),
         .decides_weights = yes,
         .help = "of the order of the rows, and of new weights"},
        // How many threads there are decides how libtorch splits its sums.
        {.pointer = "/training/threads",
         .kind = make_integer(&TrainingSpec::threads, {0, 4096}),
         .decides_weights = last_bits,
         .help = "threads that compute",
         .default_note = "= all cores"},
        {.pointer = "/training/decode_threads",
         .kind = make_integer(&TrainingSpec::decode_threads, {0, 1024}),
         .decides_weights = no,
         .help = "threads that decode the teacher's answers",
         .default_note = "= half the cores, at least one"},
        {.pointer = "/training/logging_steps",
         .kind = make_integer(&TrainingSpec::logging_steps, {1, kMaxSteps}),
         .decides_weights = no,
         .help = "steps from one line of figures to the next"},
        {.pointer = "/training/eval_steps",
         .kind = make_integer(&TrainingSpec::eval_steps, {0, kMaxSteps}),
         .decides_weights = no,
         .help = "steps from one evaluation to the next",
         .default_note = "= at the end only"},
    };
}

std::vector<SpecField> checkpoint_fields() {
    return {
        {.pointer = "/checkpoint/every_steps",
         .kind = make_integer(&CheckpointSpec::every_steps, {0, kMaxSteps}),
         .decides_weights = no,
         .help = "steps from one checkpoint to the next; there is always one when a run is interrupted, and one at the "
                 "end, before the last evaluation",
         .default_note = "= by time only"},
        {.pointer = "/checkpoint/every_secs",
         .kind = make_number(&CheckpointSpec::every_secs, {.max = 1e9}),
         .decides_weights = no,
         .help = "seconds of training from one checkpoint to the next; with `every_steps`, whichever comes first",
         .default_note = "(0 = by steps only)"},
        {.pointer = "/checkpoint/keep",
         .kind = make_integer(&CheckpointSpec::keep, {1, 1000}),
         .decides_weights = no,
         .help = "newest checkpoints that stay on disk"},
        {.pointer = "/checkpoint/dir",
         .kind = make_path(&CheckpointSpec::dir, "folder", true),
         .decides_weights = no,
         .help = "where the checkpoints go",
         .default_note = "`checkpoints/` in `output`"},
    };
}

// They tell of a run, and change nothing of it.
std::vector<SpecField> metrics_fields() {
    return {
        {.pointer = "/metrics/tensorboard_dir",
         .kind = make_path(&MetricsSpec::tensorboard_dir, "folder", true),
         .decides_weights = no,
         .help = "takes TensorBoard event files; a folder of the run's own"},
        {.pointer = "/metrics/jsonl_file",
         .kind = make_path(&MetricsSpec::jsonl_file, "file", true),
         .decides_weights = no,
         .help = "takes the figures of each step, evaluation and checkpoint, one JSON object a line; a file of the "
                 "run's own"},
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
        for (const auto rows : {document_fields, student_fields, teacher_fields, dataset_fields, training_fields,
                                checkpoint_fields, metrics_fields, last_document_fields}) {
            std::ranges::move(rows(), std::back_inserter(made.fields));
        }
        return made;
    }();
    return table;
}

}  // namespace distilld::api

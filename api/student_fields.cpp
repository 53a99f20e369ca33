#include "api/section_fields.hpp"

#include "api/job_spec_json.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;
using enum DecidesWeights::Answer;

constexpr ListRange kModules{.text = {.max_bytes = 256}, .max_count = 256};

constexpr TextForm kDeviceForm{
    .pattern = "auto|cpu|cuda(:(0|[1-9][0-9]?))?",
    .values = "`\"auto\"`, `\"cpu\"`, `\"cuda\"`, `\"cuda:n\"`",
    .complaint = "must be \"auto\", \"cpu\", \"cuda\" or \"cuda:n\" with n from 0 to 99",
};

/// Any object, kept as text.
FieldKind<JobSpec> config_kind() {
    const auto to = [](const StudentSpec& student) -> json::value {
        if (!student.config_json) {
            return nullptr;
        }
        auto config = parse_json_text(*student.config_json, kSpecDepthLimit);
        if (!config) {
            throw ErrorException(invalid_input("/student/config is not JSON: " + config.error().reason));
        }
        return *std::move(config);
    };
    const auto from = [](StudentSpec& student, const json::value& config) { student.config_json = to_text(config); };
    return make_field<StudentSpec>(object_kind(), to, from);
}

}  // namespace

// A checkpoint itself holds what determines the network: its config and weights. So the folder that a run started from
// may have moved.
std::vector<SpecField> student_fields() {
    return {
        {.pointer = "/student/format",
         .kind = make_choice(&StudentSpec::format, kEnumNames<StudentFormat>),
         .decides_weights = yes,
         .help = "huggingface: a language model; torchscript: any network, in a file of `torch.jit.save` "
                 "(docs/any-network.md)"},
        {.pointer = "/student/model",
         .kind = make_path(&StudentSpec::model, PathUse::reads, "Hugging Face folder or TorchScript file"),
         .decides_weights = first_weights,
         .help = "the network to train; with `lora`, the base model, or a PEFT folder to continue from",
         .default_note = "required, unless `init` is `\"random\"` and `config` is given",
         .there = Named::folder,
         .also_known_as = {"model_name_or_path", "model_name", "student_model"}},
        {.pointer = "/student/inputs",
         .kind = make_texts(&StudentSpec::inputs, kTensorNames),
         .decides_weights = yes,
         .help = "of a TorchScript student: the tensors of the data that its `forward` takes, in this order"},
        {.pointer = "/student/outputs",
         .kind = make_texts(&StudentSpec::outputs, kTensorNames),
         .decides_weights = yes,
         .help = "of a TorchScript student: names for the tensor, or the elements of the tuple, that its `forward` "
                 "returns"},
        {.pointer = "/student/init",
         .kind = make_choice(&StudentSpec::init, kEnumNames<StudentInit>),
         .decides_weights = first_weights,
         .help = "keep the folder's weights, or draw new ones"},
        {.pointer = "/student/config",
         .kind = config_kind(),
         .decides_weights = no,
         .help = "fields of the model's `config.json`; they override the folder's"},
        // The checkpoint holds a hash of the resulting token ids.
        {.pointer = "/student/tokenizer",
         .kind = make_path(&StudentSpec::tokenizer, PathUse::reads, "folder", true),
         .decides_weights = no,
         .help = "folder with the tokenizer.json (of type BPE, see docs/tokenizers.md) that reads `{\"text\"}` rows "
                 "and is copied to `output`. If neither it nor `model` has one, text is read byte by byte, which takes "
                 "a student with a vocabulary of 257",
         .default_note = "that of `model`",
         .there = Named::folder,
         .also_known_as = {"tokenizer_name", "tokenizer_name_or_path"}},
        {.pointer = "/student/dtype",
         .kind = make_choice(&StudentSpec::dtype, kDtypeNames),
         .decides_weights = yes,
         .help = "bf16 = fp32 master weights, bf16 arithmetic; auto is bf16 on CUDA and on CPUs with AMX or "
                 "AVX512-BF16, else fp32. A resumed run keeps the first choice of auto, on every machine. fp64 is for "
                 "TorchScript students, whose auto is fp32",
         .also_known_as = {"torch_dtype", "bf16", "fp16", "precision"}},
        // Another device sums in another order, as another number of threads does, but a run must be able to continue
        // without a GPU, or on another one. The warning also covers dtype auto, which may resolve differently there.
        {.pointer = "/student/device",
         .kind = make_text(&StudentSpec::device, {.max_bytes = 16, .form = &kDeviceForm}),
         .decides_weights = last_bits,
         .help = "where the student is trained; auto takes CUDA if there is a GPU. `cuda:n` is GPU n, counted from 0"},
        {.pointer = "/student/quantization",
         .kind = make_choice(&StudentSpec::quantization, kEnumNames<Quantization>),
         .decides_weights = yes,
         .help = "ternary: linear modules compute with weights of -1, 0 and 1, a scale, and 8-bit inputs; training "
                 "updates full-precision weights behind them (docs/students.md)"},
        {.pointer = "/student/quantize_modules",
         .kind = make_texts(&StudentSpec::quantize_modules, kModules),
         .decides_weights = yes,
         .help = "modules that are quantized, by the last part of their names or more of it",
         .default_note = "= all linear ones but the head"},
        {.pointer = "/student/lora/r",
         .kind = make_integer(&LoraSpec::r, {1, 65536}),
         .decides_weights = yes,
         .help = "rank of the adapters",
         .also_known_as = {"lora_r", "rank", "lora_rank"}},
        {.pointer = "/student/lora/alpha",
         .kind = make_number(&LoraSpec::alpha, {.max = 1e6, .ends = Ends::open_min}),
         .decides_weights = yes,
         .help = "the output of an adapter is multiplied by alpha / r",
         .also_known_as = {"lora_alpha"}},
        {.pointer = "/student/lora/dropout",
         .kind = make_number(&LoraSpec::dropout, {.ends = Ends::open_max}),
         .decides_weights = yes,
         .help = "share of an adapter's inputs that a training step leaves out, drawn from `training.seed` and the "
                 "micro-batch's number",
         .also_known_as = {"lora_dropout"}},
        {.pointer = "/student/lora/target_modules",
         .kind = make_texts(&LoraSpec::target_modules, kModules),
         .decides_weights = yes,
         .help = "modules that get an adapter, by the last part of their names (`[\"q_proj\", \"v_proj\"]`) or more of "
                 "it",
         .default_note = "= all linear ones but the head, or those of the adapter that the run continues from",
         .also_known_as = {"lora_target_modules"}},
        {.pointer = "/student/lora/merge",
         .kind = make_boolean(&LoraSpec::merge),
         .decides_weights = no,
         .help =
             "beside the adapter, write the model with the adapter merged into its weights to `merged/` in `output`"},
    };
}

}  // namespace distilld::api

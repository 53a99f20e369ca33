#include "api/section_fields.hpp"

#include <regex>

namespace distilld::api {
namespace {

using enum DecidesWeights::Answer;

// A name below the folder of keys that cannot lead out of it.
constexpr TextForm kKeyFileForm{
    .pattern = "[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*",
    .values = "file below the operator's folder of keys",
    .complaint =
        "must be the name of a file below the folder of keys that the operator gave (distilld serve --key-root)",
};

/// "auto" searches up to the end of the range.
FieldKind<JobSpec> concurrency_kind(IntegerRange range) {
    const auto to = [](const TeacherSpec& teacher) {
        const auto& [automatic, limit] = teacher.max_concurrent;
        return automatic ? boost::json::value("auto") : boost::json::value(std::uint64_t{limit});
    };
    const auto from = [range](TeacherSpec& teacher, const boost::json::value& kept) {
        const auto limit = kept.is_string() ? range.max : kept.get_uint64();
        teacher.max_concurrent = {kept.is_string(), static_cast<std::uint32_t>(limit)};
    };
    return make_field<TeacherSpec>(integer_or_auto_kind(range), to, from);
}

/// A choice of names without an enumeration here.
FieldKind<JobSpec> names_kind(std::string TeacherSpec::* member, const auto& names) {
    return make_field(choice_kind({names.begin(), names.end()}), member);
}

}  // namespace

bool is_teacher_name(std::string_view text) {
    static const std::regex form(kTeacherNameForm.pattern);
    return std::regex_match(text.begin(), text.end(), form);
}

// A teacher may move to other endpoints and be asked differently, if it answers the same questions.
std::vector<SpecField> teacher_fields() {
    return {
        {.pointer = "/teacher/endpoints",
         .kind = make_urls(&TeacherSpec::endpoints, 256),
         .decides_weights = no,
         .help = "URLs of the teacher, without user name, password and fragment; a URL without a path gets the default "
                 "path of its protocol. A job starts when one endpoint is up",
         .default_note = "required, unless `model_dir` is given, or `store` is to hold all answers",
         .also_known_as = {"teacher_model_server_url", "base_url", "endpoint"}},
        {.pointer = "/teacher/model_dir",
         .kind = make_path(&TeacherSpec::model_dir, PathUse::reads, "Hugging Face folder", true),
         .decides_weights = no,
         .help = "folder of a teacher that computes inside the job, in place of `endpoints`; `distilld teacher` takes "
                 "the same folder. It is loaded once. Its answers are those of that server, bit for bit if `dtype` and "
                 "the number of threads are the same",
         .there = Named::folder,
         .also_known_as = {"teacher_model_name_or_path", "teacher_model"}},
        {.pointer = "/teacher/module",
         .kind = make_path(&TeacherSpec::module, PathUse::reads, "TorchScript file", true),
         .decides_weights = no,
         .help = "TorchScript file of a teacher that computes inside the job, for samples of tensors "
                 "(docs/any-network.md)",
         .there = Named::file},
        {.pointer = "/teacher/tokenizer",
         .kind = make_path(&TeacherSpec::tokenizer, PathUse::reads, "Hugging Face folder", true),
         .decides_weights = yes,
         .help =
             "folder with the teacher's tokenizer.json, if it is not the student's (docs/data.md): the teacher reads "
             "each text in its own tokens, and the student learns where both have read the same bytes. Takes "
             "`top_k`, and `dataset.packing` \"documents\" or false",
         .there = Named::folder,
         .also_known_as = {"teacher_tokenizer_name_or_path"}},
        {.pointer = "/teacher/inputs",
         .kind = make_texts(&TeacherSpec::inputs, kTensorNames),
         .decides_weights = yes,
         .help = "for samples: the tensors of the data that the teacher gets; a `module` takes them in this order"},
        {.pointer = "/teacher/outputs",
         .kind = make_texts(&TeacherSpec::outputs, kTensorNames),
         .decides_weights = yes,
         .help = "for samples: names of the tensors that the teacher returns; a `module` returns them in this order"},
        {.pointer = "/teacher/placement",
         .kind = make_choice(&TeacherSpec::placement, kEnumNames<TeacherPlacement>),
         .decides_weights = no,
         .help = "where `model_dir` computes: on the student's device (rank0), always on the CPU (cpu), with its "
                 "layers distributed over all CUDA devices (balanced), or on the CPU from mapped files that all "
                 "processes of a machine share (shared; `dtype` must equal that of the files). One of a machine's "
                 "`training.ranks` computes for all, but each for itself with shared, or on its own copy (duplicated)"},
        {.pointer = "/teacher/dtype",
         .kind = make_choice(&TeacherSpec::dtype, kDtypeNames),
         .decides_weights = no,
         .help = "arithmetic of `model_dir`; auto is bf16 on CUDA and on CPUs with AMX or AVX512-BF16, else fp32. A "
                 "resumed run keeps the first choice of auto, on every machine"},
        {.pointer = "/teacher/threads",
         .kind = make_integer(&TeacherSpec::threads, {0, 4096}),
         .decides_weights = no,
         .help = "CPU threads of `model_dir`, in addition to the student's (`/training/threads`)",
         .default_note = "= half the cores, at least one"},
        {.pointer = "/teacher/protocol",
         .kind = make_choice(&TeacherSpec::protocol, kTeacherProtocolNames),
         .decides_weights = yes,
         .help = "protocol of the endpoints; auto asks the server what it is"},
        {.pointer = "/teacher/model",
         .kind = make_text(&TeacherSpec::model, {.max_bytes = 256}),
         .decides_weights = no,
         .help = "name of the model at the endpoint"},
        {.pointer = "/teacher/max_concurrent",
         .kind = concurrency_kind({1, 1024}),
         .decides_weights = no,
         .help = "requests in flight; `\"auto\"` looks for the smallest number that hides the teacher"},
        {.pointer = "/teacher/window",
         .kind = make_integer(&TeacherSpec::window, {0, 1U << 20}),
         .decides_weights = no,
         .help = "micro-batches that are requested ahead of training",
         .default_note = "= 4 × `max_concurrent`, more if requests would otherwise wait for slow answers, as far as "
                         "`window_bytes` allows"},
        {.pointer = "/teacher/window_bytes",
         .kind = make_size(&TeacherSpec::window_bytes, {1, 1ULL << 50}),
         .decides_weights = no,
         .help = "memory for answers that are waiting, arriving or being decoded, in bytes"},
        {.pointer = "/teacher/timeout_secs",
         .kind = make_seconds(&TeacherSpec::timeout_secs, {.max = 86400, .ends = Ends::open_min}),
         .decides_weights = no,
         .help = "seconds that one request may take"},
        {.pointer = "/teacher/patience_secs",
         .kind = make_seconds(&TeacherSpec::patience_secs, {.max = 2592000, .ends = Ends::open_min}),
         .decides_weights = no,
         .help = "seconds that a job waits while no endpoint answers (refused, not resolved, 429, 503, timed out, 404 "
                 "while a model is loaded), counted from the first failure after the last answer"},
        {.pointer = "/teacher/startup_timeout_secs",
         .kind = make_seconds(&TeacherSpec::startup_timeout_secs, {.max = 86400}),
         .decides_weights = no,
         .help = "seconds that a job waits at the start until one endpoint is up; the others join later",
         .default_note = "= `patience_secs`"},
        {.pointer = "/teacher/max_retry_after_secs",
         .kind = make_seconds(&TeacherSpec::max_retry_after_secs, {.max = 86400}),
         .decides_weights = no,
         .help = "longest `Retry-After` that is honoured, in seconds; the endpoint is asked again after that"},
        {.pointer = "/teacher/top_k",
         .kind = make_integer(&TeacherSpec::top_k, {0, 65536}),
         .decides_weights = yes,
         .help = "most likely tokens that the teacher sends per position",
         .default_note = "= all tokens",
         .also_known_as = {"loss_top_k", "top_logprobs", "num_logprobs"}},
        // Hidden states give the teacher's logits except for their last bits.
        {.pointer = "/teacher/targets",
         .kind = make_choice(&TeacherSpec::targets, kTargetsChoiceNames),
         .decides_weights = yes,
         .help = "what the teacher sends per position: its top_k most likely tokens, the logits of all tokens, or the "
                 "hidden state before its head (the head is fetched once, and logits are computed beside the student). "
                 "auto is topk if top_k is above 0, else hidden if that takes fewer bytes than logits, else logits. A "
                 "resumed run keeps its choice"},
        {.pointer = "/teacher/api_key_env",
         .kind =
             make_text(&TeacherSpec::api_key_env, {.max_bytes = 256, .may_be_empty = true, .form = &kKeyVariableForm}),
         .decides_weights = no,
         .help = "environment variable of `distilld serve` or `run` that holds the bearer key; a spec never contains "
                 "the key itself"},
        {.pointer = "/teacher/api_key_file",
         .kind = make_text(&TeacherSpec::api_key_file, {.max_bytes = 256, .may_be_empty = true, .form = &kKeyFileForm}),
         .decides_weights = no,
         .help = "file with the bearer key, below the folder of `distilld serve --key-root DIR`, or of "
                 "`DISTILLD_KEYS_DIR` for `run`; it is read when the job starts"},
        {.pointer = "/teacher/ca_file",
         .kind = make_path(&TeacherSpec::ca_file, PathUse::reads, "PEM file", true),
         .decides_weights = no,
         .help = "certificates that are trusted besides the system's",
         .there = Named::file},
        {.pointer = "/teacher/require_same_tokenizer",
         .kind = make_boolean(&TeacherSpec::require_same_tokenizer),
         .decides_weights = no,
         .help = "refuse a teacher whose tokenizer differs from the student's, if the two can be compared; false: warn "
                 "and continue"},
        {.pointer = "/teacher/max_retries",
         .kind = make_integer(&TeacherSpec::max_retries, {0, 1000}),
         .decides_weights = no,
         .help = "further attempts for one micro-batch before the job fails, if its answers are faulty (5xx, garbage); "
                 "outages take time, not attempts"},
        {.pointer = "/teacher/hedge",
         .kind = make_boolean(&TeacherSpec::hedge),
         .decides_weights = no,
         .help = "send a second request when the first takes longer than 95 % of the last ones did"},
        {.pointer = "/teacher/store",
         .kind = make_path(&TeacherSpec::store, PathUse::shares, "folder", true),
         .decides_weights = no,
         .help = "folder of stored answers. Without `endpoints` and `model_dir` the student learns from them alone, "
                 "and waits for those that are not written yet; with one of these, see `cache`"},
        {.pointer = "/teacher/cache",
         .kind = make_choice(&TeacherSpec::cache, kEnumNames<TeacherCache>),
         .decides_weights = no,
         .help = "use of a store beside a teacher: read what it holds, write what it lacks, both, or neither"},
        {.pointer = "/teacher/store_format",
         .kind = names_kind(&TeacherSpec::store_format, kStoreFormatChoices),
         .decides_weights = yes,
         .help = "format of a new store: auto is topk, or full without `top_k`. Training uses the answers as they are "
                 "stored"},
        {.pointer = "/teacher/store_values",
         .kind = names_kind(&TeacherSpec::store_values, kStoreValuesChoices),
         .decides_weights = yes,
         .help = "precision of the values in a new store: f16, f32 (full, topk and samples), u8 (packed and topp) "
                 "or bf16 (samples)"},
        {.pointer = "/teacher/store_p",
         .kind = make_number(&TeacherSpec::store_p, {.ends = Ends::open_min}),
         .decides_weights = yes,
         .help = "format topp: the probability that the entries of a position reach together"},
        {.pointer = "/teacher/store_samples",
         .kind = make_integer(&TeacherSpec::store_samples, {1, 255}),
         .decides_weights = yes,
         .help = "format sampled: draws per position"},
    };
}

}  // namespace distilld::api

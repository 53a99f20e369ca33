#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.hpp"
#include "pipeline/core/targets_choice.hpp"
#include "pipeline/core/teacher_protocol.hpp"

namespace distilld {

/// A validated job. The default values of the members are the defaults of the fields; what else is to be said about a
/// field (range, meaning, whether weights depend on it) stands in its row of api/spec_fields.cpp. Field names are those
/// of the JSON, which nothing here reads.

/// What a job does: distil a student, or write what the teacher says of a dataset into a store.
enum class JobKind { train, generate };
enum class Dtype { auto_select, fp32, bf16 };
enum class StudentInit { pretrained, random };
enum class LrScheduler { constant, linear, cosine };
/// Whether rows hold several documents.
enum class Packing {
    off,        ///< one document a row
    joined,     ///< documents end to end, cut into full rows; a position sees what stands before it, whosever it is
    documents,  ///< whole documents side by side, kept apart in attention and positions
};
/// What becomes of a document that is longer than a row, where rows hold whole documents.
enum class Overflow {
    automatic,  ///< split with Packing::documents, truncate with Packing::off
    split,      ///< it is cut into rows, each read by itself
    truncate,   ///< what is behind the first sequence_length tokens is left out
    error,      ///< the job is refused, and the document named
};
enum class OptimizerKind { adamw, adamw_8bit, sgd };
enum class Quantization { none, ternary };
/// In which order an epoch visits the rows: any, those of a block after those of the block before it, or as they stand.
enum class Shuffle { full, blocks, off };
/// What a job that has a teacher beside its store does with the store.
enum class TeacherCache { off, read, write, readwrite };
/// Where the weights of a teacher in the process lie, and where it computes.
enum class TeacherPlacement {
    rank0,     ///< on the student's device
    cpu,       ///< on the CPU
    balanced,  ///< layers spread over all CUDA devices; without one, on the CPU
    shared,    ///< on the CPU, in the files themselves, of which all processes of a machine have one copy
};

inline constexpr std::array kJobKindNames{EnumName<JobKind>{"train", JobKind::train},
                                          EnumName<JobKind>{"generate", JobKind::generate}};
inline constexpr std::array kDtypeNames{EnumName<Dtype>{"auto", Dtype::auto_select},
                                        EnumName<Dtype>{"fp32", Dtype::fp32}, EnumName<Dtype>{"bf16", Dtype::bf16}};
inline constexpr std::array kStudentInitNames{EnumName<StudentInit>{"pretrained", StudentInit::pretrained},
                                              EnumName<StudentInit>{"random", StudentInit::random}};
inline constexpr std::array kLrSchedulerNames{EnumName<LrScheduler>{"constant", LrScheduler::constant},
                                              EnumName<LrScheduler>{"linear", LrScheduler::linear},
                                              EnumName<LrScheduler>{"cosine", LrScheduler::cosine}};
inline constexpr std::array kShuffleNames{EnumName<Shuffle>{"full", Shuffle::full},
                                          EnumName<Shuffle>{"blocks", Shuffle::blocks},
                                          EnumName<Shuffle>{"off", Shuffle::off}};
inline constexpr std::array kOptimizerKindNames{EnumName<OptimizerKind>{"adamw", OptimizerKind::adamw},
                                                EnumName<OptimizerKind>{"adamw_8bit", OptimizerKind::adamw_8bit},
                                                EnumName<OptimizerKind>{"sgd", OptimizerKind::sgd}};
inline constexpr std::array kQuantizationNames{EnumName<Quantization>{"none", Quantization::none},
                                               EnumName<Quantization>{"ternary", Quantization::ternary}};
inline constexpr std::array kTeacherCacheNames{
    EnumName<TeacherCache>{"off", TeacherCache::off}, EnumName<TeacherCache>{"read", TeacherCache::read},
    EnumName<TeacherCache>{"write", TeacherCache::write}, EnumName<TeacherCache>{"readwrite", TeacherCache::readwrite}};

inline constexpr std::array kTeacherPlacementNames{EnumName<TeacherPlacement>{"rank0", TeacherPlacement::rank0},
                                                   EnumName<TeacherPlacement>{"cpu", TeacherPlacement::cpu},
                                                   EnumName<TeacherPlacement>{"balanced", TeacherPlacement::balanced},
                                                   EnumName<TeacherPlacement>{"shared", TeacherPlacement::shared}};

[[nodiscard]] constexpr const auto& enum_names(JobKind) {
    return kJobKindNames;
}
[[nodiscard]] constexpr const char* to_string(Dtype value) noexcept {
    return name_of(kDtypeNames, value);
}

inline constexpr std::array kPackingNames{EnumName<Packing>{"off", Packing::off},
                                          EnumName<Packing>{"joined", Packing::joined},
                                          EnumName<Packing>{"documents", Packing::documents}};

inline constexpr std::array kOverflowNames{EnumName<Overflow>{"split", Overflow::split},
                                           EnumName<Overflow>{"truncate", Overflow::truncate},
                                           EnumName<Overflow>{"error", Overflow::error}};

/// Low-rank adapters (arXiv 2106.09685) on a frozen base, as PEFT has them.
struct LoraSpec {
    std::uint32_t r = 8;
    double alpha = 16.0;
    double dropout = 0.0;
    std::vector<std::string> target_modules;  ///< last parts of module names ("q_proj"); empty: all linear ones but the
                                              ///< head
    bool merge = false;                       ///< beside the adapter, export the merged model to merged/
};

struct StudentSpec {
    std::string model;  ///< Hugging Face folder; may be empty for init random with a config
    StudentInit init = StudentInit::pretrained;
    std::optional<std::string> config_json;  ///< Llama config.json fields as a JSON object; overrides the folder's
    Dtype dtype = Dtype::auto_select;
    std::string tokenizer;        ///< folder whose tokenizer reads the text; empty = model's, or bytes
    std::string device = "auto";  ///< "cpu", "cuda", "cuda:n", or "auto": CUDA where it is there
    std::optional<LoraSpec> lora;
    Quantization quantization = Quantization::none;
    std::vector<std::string> quantize_modules;  ///< last parts of module names; empty: all linear ones but the head
};

/// `"auto"`: the scheduler looks for the smallest number that hides the teacher, below `limit`. A number: that many.
struct ConcurrencySpec {
    bool automatic = false;
    std::uint32_t limit = 8;
};

struct TeacherSpec {
    std::vector<std::string> endpoints;  ///< URLs; none: model_dir, or the store has to hold all that is asked for
    std::string model_dir;               ///< Hugging Face folder of a teacher in the process; empty = none
    TeacherPlacement placement = TeacherPlacement::rank0;  ///< of model_dir
    Dtype dtype = Dtype::auto_select;                      ///< of model_dir's arithmetic
    std::uint32_t threads = 0;                             ///< of model_dir on a CPU; 0 = half the cores, at least one
    TeacherProtocol protocol = kDefaultTeacherProtocol;
    std::string model = "teacher";
    ConcurrencySpec max_concurrent;
    std::uint32_t window = 0;  ///< micro-batches issued and not yet consumed; 0 = as many as it takes
    std::uint64_t window_bytes = 1ULL << 30;
    double timeout_secs = 60.0;                  ///< of one request
    double patience_secs = 1800.0;               ///< how long an outage of all endpoints is waited out
    std::optional<double> startup_timeout_secs;  ///< how long the first endpoint is waited for; default: patience_secs
    double max_retry_after_secs = 300.0;         ///< a longer Retry-After is obeyed for so long
    std::uint32_t top_k = 0;                     ///< 0 = all tokens
    TargetsChoice targets = TargetsChoice::automatic;
    std::string api_key_env;             ///< name of the environment variable that holds the key; empty = none
    std::string api_key_file;            ///< file that holds the key, below the operator's folder of keys; empty = none
    std::string ca_file;                 ///< PEM file trusted beside the system's; empty = none
    std::uint32_t max_retries = 8;       ///< further attempts of one micro-batch after faults of its answers
    bool require_same_tokenizer = true;  ///< a teacher whose tokenizer is known to be another is refused
    bool hedge = true;                   ///< a second request for what is slower than the 95th percentile
    std::string store;                   ///< folder of stored answers; empty = none
    TeacherCache cache = TeacherCache::readwrite;  ///< of a store beside endpoints or model_dir
    // Of a store that is made: names of kStoreFormatChoices and kStoreValuesChoices, which are those of pipeline/store.
    std::string store_format = "auto";  ///< "auto": topk or, of full logits, full
    std::string store_values = "f16";
    double store_p = 0.95;             ///< of topp: the mass that is kept
    std::uint32_t store_samples = 64;  ///< of sampled: draws of a position
};

/// Files and patterns that a dataset is given as.
inline constexpr std::size_t kMaxDatasetFiles = 4096;
/// Teachers of one job.
inline constexpr std::size_t kMaxTeachers = 16;
/// Whose rows are those that name none, where there are several.
inline constexpr std::string_view kDefaultTeacher = "default";

inline constexpr std::array kStoreFormatChoices{"auto", "full", "topk", "packed", "topp", "sampled"};
inline constexpr std::array kStoreValuesChoices{"f16", "f32", "u8"};

/// Whether there is somebody to ask beside what is stored.
[[nodiscard]] inline bool can_be_asked(const TeacherSpec& teacher) {
    return !teacher.endpoints.empty() || !teacher.model_dir.empty();
}

struct DatasetSpec {
    std::vector<std::string> train;     ///< JSONL files, plain or compressed, or patterns (glob) of such
    std::vector<std::string> eval;      ///< likewise; empty = none
    std::uint32_t sequence_length = 0;  ///< T: input positions of a row
    std::uint64_t eval_rows = 0;        ///< rows of eval that are evaluated, from the first; 0 = all
    Packing packing = Packing::joined;
    Overflow overflow = Overflow::automatic;
    bool cache = true;                 ///< tokens are kept beside the output and mapped at the next start
    bool completion_only_loss = true;  ///< of {"prompt", "completion"} and messages: no loss on what was given
    Shuffle shuffle = Shuffle::full;
    std::uint64_t shuffle_block_rows = 4096;  ///< of Shuffle::blocks
};

struct TrainingSpec {
    bool parallel = true;
    bool overlap_optimizer = true;    ///< lazy, layer by layer; same bits as serial
    bool batch_size_auto = false;     ///< batch_size was "auto": probe the memory before step 0
    std::uint32_t batch_size = 1;     ///< B: sequences of one micro-batch
    std::uint32_t micro_batches = 1;  ///< M: micro-batches of one optimizer step
    bool micro_batches_auto = false;  ///< micro_batches was "auto": chosen from the size of the data before step 0
    std::optional<std::uint64_t> max_steps;
    std::optional<double> epochs;
    double learning_rate = 1e-4;
    LrScheduler lr_scheduler_type = LrScheduler::linear;
    std::uint64_t warmup_steps = 0;
    double warmup_ratio = 0.0;  ///< share of all steps; used where warmup_steps is 0, as in transformers
    double weight_decay = 0.0;
    double max_grad_norm = 1.0;  ///< 0 = no clipping
    double adam_beta1 = 0.9;
    double adam_beta2 = 0.999;
    double adam_epsilon = 1e-8;
    OptimizerKind optimizer = OptimizerKind::adamw;
    double sgd_momentum = 0.0;
    bool gradient_checkpointing = false;  ///< keep each block's input only, and compute it again backwards
    double temperature = 1.0;
    double kd_ratio = 1.0;                   ///< loss = (1 − kd_ratio)·CE + kd_ratio·T²·D, D by beta
    double beta = 0.0;                       ///< TRL's: 0 = forward KL, 1 = reverse KL, between: JSD
    std::uint64_t max_nonfinite_steps = 10;  ///< in a row; the job fails with the last of them
    std::uint64_t seed = 42;
    std::uint32_t threads = 0;         ///< 0 = all cores
    std::uint32_t decode_threads = 0;  ///< 0 = half the cores, at least one
    std::uint64_t logging_steps = 1;
    std::uint64_t eval_steps = 0;  ///< 0 = at the end only
};

struct EvalSpec {
    std::uint64_t max_rows = 0;               ///< rows of the held-out set that are evaluated, from the first; 0 = all
    bool ask_teacher = true;                  ///< about the held-out rows, for KL and agreement
    std::vector<std::string> sample_prompts;  ///< that the student goes on from at each evaluation
    std::uint32_t sample_tokens = 32;         ///< of each prompt's continuation
    double sample_temperature = 0.0;          ///< 0 = the likeliest token
};

struct CheckpointSpec {
    std::uint64_t every_steps = 0;  ///< 0 = not by steps
    double every_secs = 600;  ///< of training; 0 = not by time. When interrupted and at the end there is one anyway
    std::uint32_t keep = 2;
    std::string dir;  ///< folder of the checkpoints; empty = <output>/checkpoints
};

/// Where the figures of a run go beside the service's own; each empty = nowhere.
struct MetricsSpec {
    std::string tensorboard_dir;  ///< folder of TensorBoard event files
    std::string jsonl_file;       ///< one JSON object a line
    std::string mlflow_url;       ///< of an MLflow tracking server
    std::string otlp_url;         ///< of an OpenTelemetry collector; empty = as the environment says
};

struct JobSpec {
    std::string name = "job";
    JobKind kind = JobKind::train;
    StudentSpec student;
    std::optional<TeacherSpec> teacher;
    std::map<std::string, TeacherSpec> teachers;  ///< several by name, of which each row of the data has one
    DatasetSpec dataset;
    TrainingSpec training;
    EvalSpec eval;
    CheckpointSpec checkpoint;
    MetricsSpec metrics;
    std::string output;      ///< of a generate job the store
    bool resume = true;      ///< go on from the newest checkpoint of the same run, where there is one
    bool overwrite = false;  ///< checkpoints and a model of another run may be replaced

    /// Otherwise it is plain training on the data.
    [[nodiscard]] bool has_teacher() const noexcept { return teacher.has_value() || !teachers.empty(); }
};

}  // namespace distilld

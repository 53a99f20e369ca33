#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_names.hpp"
#include "pipeline/core/targets_choice.hpp"
#include "pipeline/core/teacher_protocol.hpp"

namespace distilld {

/// The sections of a job spec that the pipeline and the models read; api/job_spec.hpp has the whole spec. Members have
/// the names of the JSON fields, and their default values are the fields' defaults. api/spec_fields.cpp has ranges and
/// meanings, and says whether weights depend on a field.

/// What student.model is.
enum class StudentFormat {
    huggingface,  ///< a Hugging Face folder: a language model
    torchscript,  ///< a file of torch.jit.save(): any network
};
BOOST_DESCRIBE_ENUM(StudentFormat, huggingface, torchscript)

enum class DataFormat {
    jsonl,    ///< texts or token ids
    tensors,  ///< safetensors files of samples
};
BOOST_DESCRIBE_ENUM(DataFormat, jsonl, tensors)

/// How an output of a network differs from its target. models/losses/tensor_loss.cpp has the formulas.
enum class TensorLoss { kl, mse, mae, cosine, cross_entropy };
BOOST_DESCRIBE_ENUM(TensorLoss, kl, mse, mae, cosine, cross_entropy)

enum class Dtype { auto_select, fp32, bf16, fp64 };
enum class StudentInit { pretrained, random };
BOOST_DESCRIBE_ENUM(StudentInit, pretrained, random)

enum class LrScheduler { constant, linear, cosine };
BOOST_DESCRIBE_ENUM(LrScheduler, constant, linear, cosine)

/// Whether rows hold several documents.
enum class Packing {
    off,        ///< one document per row
    joined,     ///< documents end to end, split into full rows; a position sees everything before it in its row
    documents,  ///< whole documents side by side, kept apart in attention and positions
};
BOOST_DESCRIBE_ENUM(Packing, off, joined, documents)

/// What happens to a document longer than a row, if rows hold whole documents.
enum class Overflow {
    automatic,  ///< split with Packing::documents, truncate with Packing::off
    split,      ///< it is split into rows, each read on its own
    truncate,   ///< the tokens after the first sequence_length are dropped
    error,      ///< the job is refused with the document's name
};

enum class OptimizerKind { adamw, adamw_8bit, sgd };
BOOST_DESCRIBE_ENUM(OptimizerKind, adamw, adamw_8bit, sgd)

enum class Quantization { none, ternary };
BOOST_DESCRIBE_ENUM(Quantization, none, ternary)

/// The order in which an epoch visits the rows: random, random within consecutive blocks, or as in the files.
enum class Shuffle { full, blocks, off };
BOOST_DESCRIBE_ENUM(Shuffle, full, blocks, off)

/// How a job uses a store in addition to a teacher.
enum class TeacherCache { off, read, write, readwrite };
BOOST_DESCRIBE_ENUM(TeacherCache, off, read, write, readwrite)

/// Where a teacher in the process keeps its weights and computes. With several ranks, the first of each host loads it
/// for the others, except where each has its own.
enum class TeacherPlacement {
    rank0,       ///< on the student's device
    cpu,         ///< on the CPU
    balanced,    ///< layers distributed over all CUDA devices; without one, on the CPU
    shared,      ///< on the CPU, in mapped files that all processes of a machine share; each rank computes
    duplicated,  ///< as rank0, but each rank loads and computes
};
BOOST_DESCRIBE_ENUM(TeacherPlacement, rank0, cpu, balanced, shared, duplicated)

inline constexpr std::array kDtypeNames{EnumName<Dtype>{"auto", Dtype::auto_select},
                                        EnumName<Dtype>{"fp32", Dtype::fp32}, EnumName<Dtype>{"bf16", Dtype::bf16},
                                        EnumName<Dtype>{"fp64", Dtype::fp64}};

[[nodiscard]] constexpr const char* to_string(Dtype value) noexcept {
    return name_of(kDtypeNames, value);
}

inline constexpr std::array kOverflowNames{EnumName<Overflow>{"split", Overflow::split},
                                           EnumName<Overflow>{"truncate", Overflow::truncate},
                                           EnumName<Overflow>{"error", Overflow::error}};

/// Low-rank adapters (arXiv 2106.09685) on a frozen base, as in PEFT.
struct LoraSpec {
    std::uint32_t r = 8;
    double alpha = 16.0;
    double dropout = 0.0;
    std::vector<std::string> target_modules;  ///< last parts of module names ("q_proj"); empty: all linear ones but the
                                              ///< head
    bool merge = false;                       ///< also export the merged model, to merged/
};

struct StudentSpec {
    StudentFormat format = StudentFormat::huggingface;
    std::string model;  ///< Hugging Face folder, or TorchScript file; may be empty for init random with a config
    std::vector<std::string> inputs;   ///< torchscript: the data's tensors that forward() takes, in this order
    std::vector<std::string> outputs;  ///< torchscript: names of the tensors that forward() returns
    StudentInit init = StudentInit::pretrained;
    std::optional<std::string> config_json;  ///< Llama config.json fields as a JSON object; overrides the folder's
    Dtype dtype = Dtype::auto_select;
    std::string tokenizer;        ///< folder whose tokenizer reads the text; empty = model's, or bytes
    std::string device = "auto";  ///< "cpu", "cuda", "cuda:n", or "auto": CUDA if available
    std::optional<LoraSpec> lora;
    Quantization quantization = Quantization::none;
    std::vector<std::string> quantize_modules;  ///< last parts of module names; empty: all linear ones but the head
};

/// `"auto"`: the smallest number that hides the teacher, below `limit`. Otherwise a fixed number.
struct ConcurrencySpec {
    bool automatic = false;
    std::uint32_t limit = 8;
};

struct TeacherSpec {
    std::vector<std::string> endpoints;  ///< URLs; none: model_dir, or a complete store
    std::string model_dir;               ///< Hugging Face folder of a teacher in the process; empty = none
    std::string module;                  ///< TorchScript file of a teacher in the process; empty = none
    std::string tokenizer;               ///< folder of its tokenizer, if it is not the student's; empty = it is
    std::vector<std::string> inputs;     ///< tensors of the data that the teacher gets, in this order
    std::vector<std::string> outputs;    ///< names of the tensors that it returns
    TeacherPlacement placement = TeacherPlacement::rank0;  ///< of model_dir
    Dtype dtype = Dtype::auto_select;                      ///< of model_dir's arithmetic
    std::uint32_t threads = 0;                             ///< of model_dir on a CPU; 0 = half the cores, at least one
    TeacherProtocol protocol = kDefaultTeacherProtocol;
    std::string model = "teacher";
    ConcurrencySpec max_concurrent;
    std::uint32_t window = 0;  ///< micro-batches issued and not yet consumed; 0 = automatic
    std::uint64_t window_bytes = 1ULL << 30;
    double timeout_secs = 60.0;                  ///< per request
    double patience_secs = 1800.0;               ///< timeout of an outage of all endpoints
    std::optional<double> startup_timeout_secs;  ///< timeout for the first endpoint to be up; default: patience_secs
    double max_retry_after_secs = 300.0;         ///< limit of an obeyed Retry-After
    std::uint32_t top_k = 0;                     ///< 0 = all tokens
    TargetsChoice targets = TargetsChoice::automatic;
    std::string api_key_env;             ///< name of the environment variable that holds the key; empty = none
    std::string api_key_file;            ///< file that holds the key, below the operator's folder of keys; empty = none
    std::string ca_file;                 ///< PEM file trusted in addition to the system's; empty = none
    std::uint32_t max_retries = 8;       ///< further attempts of one micro-batch after faulty answers
    bool require_same_tokenizer = true;  ///< a teacher with a different tokenizer is refused
    bool hedge = true;                   ///< a second request for answers slower than the 95th percentile
    std::string store;                   ///< folder of stored answers; empty = none
    TeacherCache cache = TeacherCache::readwrite;  ///< of a store used with endpoints or model_dir
    // Of a new store: names of kStoreFormatChoices and kStoreValuesChoices, as in pipeline/store.
    std::string store_format = "auto";  ///< "auto": topk, or full for full logits
    std::string store_values = "f16";
    double store_p = 0.95;             ///< topp: the mass to keep
    std::uint32_t store_samples = 64;  ///< sampled: draws per position
};

/// With several teachers, the teacher of rows without a name.
inline constexpr std::string_view kDefaultTeacher = "default";

/// The folder or file of a teacher that computes in the process; empty: there is none.
[[nodiscard]] inline const std::string& local_model_of(const TeacherSpec& teacher) {
    return teacher.module.empty() ? teacher.model_dir : teacher.module;
}

/// Whether answers are read from a store or written to it.
[[nodiscard]] inline bool uses_store(const TeacherSpec& teacher) {
    return !teacher.store.empty() && teacher.cache != TeacherCache::off;
}

/// Whether there is a teacher in addition to a store.
[[nodiscard]] inline bool can_be_asked(const TeacherSpec& teacher) {
    return !teacher.endpoints.empty() || !local_model_of(teacher).empty();
}

struct DatasetSpec {
    DataFormat format = DataFormat::jsonl;
    std::vector<std::string> train;     ///< files (JSONL may be compressed), or glob patterns
    std::vector<std::string> eval;      ///< likewise; empty = none
    std::uint32_t sequence_length = 0;  ///< T: input positions per row
    std::uint64_t eval_rows = 0;        ///< rows of eval to evaluate, from the first; 0 = all
    Packing packing = Packing::joined;
    Overflow overflow = Overflow::automatic;
    bool cache = true;                          ///< tokens are kept next to the output and mapped at the next start
    std::uint32_t teacher_sequence_length = 0;  ///< of documents with a prompt for the teacher; 0: sequence_length
    bool completion_only_loss = true;           ///< of {"prompt", "completion"} and messages: no loss on the prompt
    Shuffle shuffle = Shuffle::full;
    std::uint64_t shuffle_block_rows = 4096;  ///< of Shuffle::blocks
};

/// How the student's own answers are had, which it then trains on (docs/on-policy.md).
struct RolloutSpec {
    std::vector<std::string> endpoints;  ///< URLs of servers that write with the student's weights
    RolloutProtocol protocol = RolloutProtocol::automatic;
    std::vector<std::string> prompts;       ///< JSONL files, or glob patterns
    std::uint32_t max_prompt_tokens = 256;  ///< a longer prompt is refused
    std::uint32_t max_tokens = 128;         ///< of an answer
    double temperature = 1.0;               ///< 0: always the likeliest token
    double top_p = 1.0;                     ///< tokens are drawn among the likeliest with this mass together
    std::uint32_t staleness = 0;            ///< steps between the weights that write for a step and that step
    double lmbda = 1.0;                     ///< share of the rows that are answered; the others are the dataset's
    std::string replay;                     ///< file of the answers that an earlier run has kept; empty = ask servers
    bool keep = true;                       ///< answers are kept beside the output, so that a run goes on with them
    bool require_repeatable = true;         ///< refuse servers that do not repeat an answer of the same seed
    double timeout_secs = 120.0;            ///< of the answers to one micro-batch
    double patience_secs = 1800.0;          ///< timeout of an outage of all endpoints
    std::string api_key_env;                ///< name of the environment variable that holds the key; empty = none
    std::string ca_file;                    ///< PEM file trusted in addition to the system's; empty = none
};

/// A term of the loss of a network with named outputs.
struct LossTerm {
    TensorLoss kind = TensorLoss::mse;
    std::string output;  ///< of the student
    std::string target;  ///< "teacher.NAME" or "data.NAME"
    double weight = 1;
    double temperature = 1;  ///< for kl
};

/// The teacher's output that a term's target names; empty: the target is a tensor of the data.
[[nodiscard]] inline std::optional<std::string_view> name_at_teacher(const LossTerm& term) {
    constexpr std::string_view kTeacher = "teacher.";
    const std::string_view target = term.target;
    return target.starts_with(kTeacher) ? std::optional(target.substr(kTeacher.size())) : std::nullopt;
}

/// The tensor of the data that a term's target names; empty: the target is an output of the teacher.
[[nodiscard]] inline std::optional<std::string_view> name_in_data(const LossTerm& term) {
    constexpr std::string_view kData = "data.";
    const std::string_view target = term.target;
    return target.starts_with(kData) ? std::optional(target.substr(kData.size())) : std::nullopt;
}

struct TrainingSpec {
    bool parallel = true;
    bool overlap_optimizer = true;    ///< lazy, layer by layer; same bits as serial
    bool batch_size_auto = false;     ///< batch_size was "auto": probe the memory before step 0
    std::uint32_t batch_size = 1;     ///< B: sequences per micro-batch
    std::uint32_t micro_batches = 1;  ///< M: micro-batches per optimizer step
    bool micro_batches_auto = false;  ///< micro_batches was "auto": chosen from the size of the data before step 0
    std::uint32_t replicas = 1;  ///< micro-batches that train at once, each on a thread of its own; 1: on `threads`
    bool replicas_auto = true;   ///< replicas was "auto": chosen by the network's size before step 0
    /// Groups of a step's micro-batches: gradients are summed within each, and the groups' sums by a fixed tree.
    std::uint32_t gradient_groups = 1;
    std::uint32_t ranks = 1;       ///< workers on this machine that share the micro-batches of each step
    bool shard_optimizer = false;  ///< each rank keeps the optimizer's state of a part of the layers
    std::optional<std::uint64_t> max_steps;
    std::optional<double> epochs;
    double learning_rate = 1e-4;
    LrScheduler lr_scheduler_type = LrScheduler::linear;
    std::uint64_t warmup_steps = 0;
    double warmup_ratio = 0.0;  ///< share of all steps; used if warmup_steps is 0, as in transformers
    double weight_decay = 0.0;
    double max_grad_norm = 1.0;  ///< 0 = no clipping
    double adam_beta1 = 0.9;
    double adam_beta2 = 0.999;
    double adam_epsilon = 1e-8;
    OptimizerKind optimizer = OptimizerKind::adamw;
    double sgd_momentum = 0.0;
    bool gradient_checkpointing = false;  ///< keep only each block's input, and recompute the block in backward
    double temperature = 1.0;
    double kd_ratio = 1.0;                   ///< loss = (1 − kd_ratio)·CE + kd_ratio·T²·D, D by beta
    double beta = 0.0;                       ///< TRL's: 0 = forward KL, 1 = reverse KL, between: JSD
    std::vector<LossTerm> losses;            ///< of a TorchScript student, instead of kd_ratio and beta
    std::uint64_t max_nonfinite_steps = 10;  ///< in a row, after which the job fails
    std::uint64_t seed = 42;
    std::uint32_t threads = 0;         ///< 0 = all cores
    std::uint32_t decode_threads = 0;  ///< 0 = half the cores, at least one
    std::uint64_t logging_steps = 1;
    std::uint64_t eval_steps = 0;  ///< 0 = at the end only
};

struct CheckpointSpec {
    std::uint64_t every_steps = 0;  ///< 0 = not by steps
    double every_secs = 600;        ///< of training; 0 = not by time. Always written when interrupted and at the end
    std::uint32_t keep = 2;
    std::string dir;  ///< folder of the checkpoints; empty = <output>/checkpoints
};

}  // namespace distilld

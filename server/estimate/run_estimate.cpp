#include "server/estimate/run_estimate.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <cmath>

#include "models/families/module_names.hpp"
#include "models/families/network_shape.hpp"
#include "models/losses/activation_bytes.hpp"
#include "models/optimizers/state_sizes.hpp"
#include "pipeline/core/automatic_batch.hpp"
#include "pipeline/core/batch_plan.hpp"
#include "pipeline/core/ranks/rank_rules.hpp"

namespace distilld {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kMaster = 4;  ///< bytes per element of a master, gradient or moment
/// Memory of a worker that trains almost nothing; measured (tests/e2e/test_dry_run.py).
constexpr std::uint64_t kRuntimeBytes = std::uint64_t{150} << 20;
struct Counts {
    std::uint64_t frozen = 0;
    std::uint64_t trained = 0;
    std::uint64_t trained_tables = 0;  ///< of those, in the embedding
};

bool is_target(const LoraSpec& lora, const std::string& name) {
    return lora.target_modules.empty() || models::name_module(lora.target_modules, name);
}

Counts counts_of(const JobSpec& spec, const models::NetworkShape& shape) {
    Counts counts;
    if (!spec.student.lora) {
        counts.trained = shape.parameters();
        counts.trained_tables = shape.embedding;
        return counts;
    }
    counts.frozen = shape.parameters();
    for (const auto& linear : shape.linears) {
        if (is_target(*spec.student.lora, linear.name)) {
            counts.trained += shape.layers * spec.student.lora->r * (linear.inputs + linear.outputs);
        }
    }
    return counts;
}

std::uint64_t answer_bytes(const TeacherSpec& teacher, const models::DecoderConfig& student, std::uint64_t positions) {
    const auto vocabulary = static_cast<std::uint64_t>(student.vocab_size);
    if (teacher.top_k > 0) {
        return positions * std::min<std::uint64_t>(teacher.top_k, vocabulary) * 8;  // a number and an id
    }
    return positions * vocabulary * 4;
}

std::uint64_t window_bytes(const TeacherSpec& teacher, std::uint64_t answer) {
    // Requests in flight, as many waiting answers, and one answer in each later stage.
    const std::uint64_t answers = teacher.window > 0 ? teacher.window : 2ULL * teacher.max_concurrent.limit;
    return saturating_sum(std::min(saturating_product(answers, answer), teacher.window_bytes),
                          saturating_product(3, answer));
}

/// Of a model in the process. Mapped files are in memory once.
std::uint32_t copies_of(const TeacherSpec& teacher, std::uint32_t ranks) {
    const bool mapped = teacher.placement == TeacherPlacement::shared;
    return mapped || computes_for_all_ranks(teacher) ? 1 : ranks;
}

std::uint64_t teacher_bytes(const JobSpec& spec, const EstimateInputs& inputs, std::uint64_t positions) {
    const auto& student = inputs.student->decoder;
    std::uint64_t bytes = 0;
    for (const auto& [name, teacher] : spec.teachers) {
        bytes = saturating_sum(bytes, window_bytes(teacher, answer_bytes(teacher, student, positions)));
    }
    if (inputs.local_teacher && spec.teacher() != nullptr) {
        const TeacherSpec* teacher = spec.teacher();
        const bool fp32 = teacher->dtype == Dtype::fp32 || (teacher->dtype == Dtype::auto_select && !inputs.bf16);
        const std::uint64_t model = models::network_shape(*inputs.local_teacher).parameters() * (fp32 ? 4 : 2);
        bytes = saturating_sum(bytes, saturating_product(copies_of(*teacher, spec.training.ranks), model));
    }
    return bytes;
}

bool is_on_cpu(const JobSpec& spec) {
    return !spec.student.device.starts_with("cuda");
}

/// The part of a rank.
TrainingSpec training_of_rank(TrainingSpec training) {
    training.micro_batches = share_of(training.micro_batches, training.ranks);
    training.gradient_groups = share_of(training.gradient_groups, training.ranks);
    return training;
}

/// Micro-batches that train at once on a rank.
std::uint32_t replicas_of(const JobSpec& spec, const EstimateInputs& inputs, std::uint64_t parameters) {
    const TrainingSpec training = training_of_rank(spec.training);
    if (!training.parallel) {
        return 1;
    }
    ReplicaWish wish;
    wish.threads = training.threads > 0 ? training.threads : share_of(inputs.cores, training.ranks);
    wish.micro_batches = training.micro_batches_auto ? kMaxReplicas : training.micro_batches;
    wish.parameters = parameters;
    wish.available_bytes = kSaturated;
    return training.replicas_auto ? (is_on_cpu(spec) ? automatic_replicas(wish) : 1)
                                  : std::min(training.replicas, std::max(1U, wish.micro_batches));
}

MemoryEstimate memory_of(const JobSpec& spec, const EstimateInputs& inputs, const Counts& counts) {
    const bool bf16 = spec.student.dtype == Dtype::bf16 || (spec.student.dtype == Dtype::auto_select && inputs.bf16);
    const std::uint64_t element = bf16 ? 2 : 4;
    const std::uint64_t positions =
        std::uint64_t{spec.training.batch_size} * std::max<std::uint64_t>(1, spec.dataset.sequence_length);
    const std::uint32_t ranks = spec.training.ranks;
    MemoryEstimate memory;
    // Frozen weights exist once per rank. For trained ones forward makes a 16-bit copy, which backward keeps.
    // Of a matrix with such a copy, one rank has the master if they share the optimizer's work.
    const bool leaves_masters =
        spec.training.shard_optimizer && bf16 && spec.student.quantization != Quantization::ternary;
    const std::uint64_t left = leaves_masters ? counts.trained - counts.trained_tables : 0;
    memory.weights =
        saturating_sum(saturating_product(left, kMaster),
                       saturating_product(ranks, counts.frozen * element + counts.trained * (bf16 ? 2 : 0) +
                                                     (counts.trained - left) * kMaster));
    memory.gradients =
        saturating_product(ranks * models::gradient_sums(training_of_rank(spec.training)), counts.trained * kMaster);
    memory.optimizer =
        saturating_product(spec.training.shard_optimizer ? 1 : ranks,
                           models::optimizer_state_bytes(spec.training, counts.trained, counts.trained_tables));
    memory.activations =
        saturating_product(std::uint64_t{ranks} * replicas_of(spec, inputs, counts.frozen + counts.trained),
                           models::activation_bytes(inputs.student->decoder, positions, element,
                                                    spec.training.gradient_checkpointing, is_on_cpu(spec)));
    // Answers that wait are divided over the ranks.
    memory.teacher_buffers = teacher_bytes(spec, inputs, positions);
    memory.runtime = saturating_product(ranks, kRuntimeBytes);
    return memory;
}

/// Sequences per step, however it is split; nullopt if that depends on the memory or on an unknown number of rows.
std::optional<std::uint64_t> sequences_of_step(const TrainingSpec& training, const std::optional<std::uint64_t>& rows) {
    const BatchWish wish = wish_of(training, rows.value_or(0));
    if (wish.micro_batches == 0 && !rows) {
        return std::nullopt;
    }
    if (wish.batch_size == 0) {
        return wish.micro_batches == 0 ? std::optional(std::uint64_t{max_batch_size(wish)}) : std::nullopt;
    }
    return std::uint64_t{wish.batch_size} * micro_batches_for(wish, wish.batch_size);
}

void estimate_length(const JobSpec& spec, const EstimateInputs& inputs, RunEstimate& estimate) {
    const TrainingSpec& training = spec.training;
    const auto sequences = sequences_of_step(training, inputs.rows);
    const bool open = training.batch_size_auto && !training.micro_batches_auto;
    if (training.max_steps) {
        estimate.steps = training.max_steps;
    } else if (open) {
        estimate.notes.emplace_back("steps: training.batch_size is found when the job starts");
    } else if (inputs.rows && sequences) {
        estimate.steps = steps_of_epochs(*inputs.rows, *sequences, training.epochs.value_or(1.0));
    }
    if (estimate.steps && open) {
        estimate.notes.emplace_back("tokens: training.batch_size is found when the job starts");
    } else if (estimate.steps && sequences) {
        std::uint64_t all = saturating_product(*estimate.steps, *sequences);
        if (training.epochs && inputs.rows) {
            const auto epochs = static_cast<std::uint64_t>(std::ceil(*training.epochs));
            all = std::min(all, saturating_product(*inputs.rows, epochs));
        }
        estimate.tokens = saturating_product(all, spec.dataset.sequence_length);
        if (*estimate.tokens == kSaturated) {
            estimate.notes.emplace_back("tokens: as many or more");
        }
    }
}

template <class T>
json::value or_null(const std::optional<T>& value) {
    return value ? json::value(*value) : json::value(nullptr);
}

}  // namespace

RunEstimate estimate_run(const JobSpec& spec, const EstimateInputs& inputs) {
    RunEstimate estimate;
    if (spec.kind == JobKind::generate) {
        estimate.notes.emplace_back("a generate job trains nothing: its teacher sets the time");
        return estimate;
    }
    estimate_length(spec, inputs, estimate);
    if (!inputs.student) {
        return estimate;
    }
    const auto shape = models::network_shape(*inputs.student);
    const Counts counts = counts_of(spec, shape);
    estimate.parameters = counts.frozen + counts.trained;
    estimate.trainable_parameters = counts.trained;
    estimate.memory = memory_of(spec, inputs, counts);
    if (estimate.memory->total() == kSaturated) {
        estimate.notes.emplace_back("memory: as much or more");
    }
    if (spec.training.batch_size_auto) {
        estimate.notes.emplace_back("memory: training.batch_size is found when the job starts; this is for 1");
    }
    if (spec.student.device.starts_with("cuda")) {
        estimate.notes.emplace_back("memory: all but the runtime and a part of the teacher's buffers is the GPU's");
    }
    return estimate;
}

json::object to_json_object(const RunEstimate& estimate) {
    json::object object{{"steps", or_null(estimate.steps)},
                        {"tokens", or_null(estimate.tokens)},
                        {"parameters", or_null(estimate.parameters)},
                        {"trainable_parameters", or_null(estimate.trainable_parameters)},
                        {"memory_bytes", nullptr},
                        {"seconds", or_null(estimate.seconds)},
                        {"based_on", nullptr}};
    if (const auto& memory = estimate.memory) {
        object["memory_bytes"] = json::object{{"weights", memory->weights},
                                              {"gradients", memory->gradients},
                                              {"optimizer", memory->optimizer},
                                              {"activations", memory->activations},
                                              {"teacher_buffers", memory->teacher_buffers},
                                              {"runtime", memory->runtime},
                                              {"total", memory->total()}};
    }
    if (!estimate.based_on.empty()) {
        object["based_on"] = estimate.based_on;
    }
    object["notes"] = json::array(estimate.notes.begin(), estimate.notes.end());
    return object;
}

}  // namespace distilld

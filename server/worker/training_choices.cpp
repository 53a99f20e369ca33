#include "server/worker/training_choices.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "models/training/device_memory.hpp"
#include "pipeline/core/automatic_batch.hpp"
#include "server/worker/machine/memory_probe.hpp"
#include "server/worker/ranks/rank_run.hpp"

namespace distilld {

namespace {

Result<BatchAdvice> probe_memory(const PreparedRun& run, std::uint32_t max_batch_size) {
    MemoryProbeOptions options;
    options.max_batch_size = max_batch_size;
    options.sequence_length = run.spec.dataset.sequence_length;
    options.with_teacher = run.spec.has_teacher();
    options.replicas = run.spec.training.replicas;
    for (const auto& [name, teacher] : run.spec.teachers) {
        options.top_k = std::max(options.top_k, teacher.top_k);
        options.window_bytes += teacher.window_bytes;
    }
    for (const ConnectedTeacher& teacher : run.teachers) {
        options.hidden_size =
            teacher.info.kind == TeacherTargets::Kind::hidden_states ? teacher.info.width : options.hidden_size;
    }
    const Result<std::unique_ptr<models::DeviceMemory>> memory = models::make_device_memory(run.spec.student.device);
    if (!memory) {
        return memory.error();
    }
    return advise_batch_size(*run.student, **memory, options);
}

ReplicaWish replica_wish(const PreparedRun& run) {
    const TrainingSpec& training = run.spec.training;
    ReplicaWish wish;
    wish.threads = training.threads;
    const std::uint32_t ranks = run.ranks == nullptr ? 1 : run.ranks->count();
    wish.micro_batches = (training.micro_batches + ranks - 1) / ranks;
    wish.parameters = run.student->network_parameter_count();
    wish.activation_bytes =
        run.student->activation_bytes(std::uint64_t{training.batch_size} * run.spec.dataset.sequence_length);
    const Result<std::unique_ptr<models::DeviceMemory>> memory = models::make_device_memory("cpu");
    wish.available_bytes = memory ? (*memory)->available_bytes() : 0;
    return wish;
}

}  // namespace

Result<void> choose_batch(PreparedRun& run, const EmitEvent& emit) {
    TrainingSpec& training = run.spec.training;
    const BatchWish wish = wish_of(training, run.dataset->row_count());
    BatchAdvice given;
    given.batch_size = training.batch_size;
    const Result<BatchAdvice> advice = training.batch_size_auto ? probe_memory(run, max_batch_size(wish)) : given;
    if (!advice) {
        return advice.error();
    }
    emit(LogEvent{"info", describe(wish, advice->batch_size, advice->description)});
    training.micro_batches = micro_batches_for(wish, advice->batch_size);
    training.micro_batches_auto = false;
    training.batch_size = advice->batch_size;
    training.batch_size_auto = false;
    return {};
}

Result<void> settle_replicas(PreparedRun& run, const EmitEvent& emit) {
    if (Result<void> fit = check_ranks(run.ranks, run.spec); !fit) {
        return fit;
    }
    TrainingSpec& training = run.spec.training;
    const bool on_cpu = run.spec.student.device == "cpu";
    const std::string ordered = run.student->needs_order();
    if (training.replicas_auto) {
        training.replicas = on_cpu && ordered.empty() ? automatic_replicas(replica_wish(run)) : 1;
        training.replicas_auto = false;
        if (training.replicas > 1 && training.parallel) {
            emit(LogEvent{"info",
                          "replicas auto: " + std::to_string(training.replicas) + " micro-batches train at once"});
        }
    } else if (training.replicas > 1 && !ordered.empty()) {
        return invalid_input("/training/replicas: is " + std::to_string(training.replicas) + ", but " + ordered +
                             ", so micro-batches must train one after the other; give 1 or \"auto\"");
    }
    if (training.replicas > 1 && !on_cpu) {
        return invalid_input("/training/replicas: must be 1 on " + run.spec.student.device +
                             ", where micro-batches train one after the other");
    }
    return {};
}

}  // namespace distilld

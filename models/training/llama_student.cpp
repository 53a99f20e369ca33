#include "models/training/llama_student.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/files.hpp"
#include "models/families/llama_config.hpp"
#include "models/losses/distill_loss.hpp"
#include "models/network/llama_network.hpp"
#include "models/optimizers/gradients.hpp"
#include "models/optimizers/layered_adamw.hpp"
#include "models/training/staging.hpp"
#include "models/training/student_snapshot.hpp"

namespace distilld::models {
namespace {

namespace fs = std::filesystem;

class LlamaStudent final : public Student {
  public:
    LlamaStudent(LlamaNetwork network, const LlamaStudentOptions& options)
        : network_(std::move(network)),
          training_(options.training),
          with_teacher_(options.with_teacher),
          tokenizer_folder_(options.tokenizer_folder.empty() ? fs::path(options.student.model)
                                                             : options.tokenizer_folder),
          optimizer_(
              network_.groups(),
              AdamWOptions{training_.adam_beta1, training_.adam_beta2, training_.adam_epsilon, training_.weight_decay},
              training_.parallel && training_.overlap_optimizer ? UpdateMode::lazy : UpdateMode::serial) {}

    std::unique_ptr<StagedBatch> stage(MicroBatch batch) override {
        return stage_micro_batch(batch, staging_options(with_teacher_));
    }

    MicroBatchStats train(StagedBatch& batch) override {
        const auto& staged = dynamic_cast<const TensorBatch&>(batch);
        MicroBatchStats stats;
        stats.target_tokens = staged.target_tokens;
        if (staged.target_tokens == 0) {
            return stats;
        }
        DistillLossOptions options;
        options.kd_ratio = training_.kd_ratio;
        options.temperature = training_.temperature;
        const DistillLossSums sums =
            accumulate_gradients(network_, staged, options, [this](std::size_t group) { optimizer_.apply(group); });
        stats.loss_sum = sums.loss;
        stats.kd_sum = sums.kd;
        stats.ce_sum = sums.ce;
        return stats;
    }

    void discard_gradients() override {
        optimizer_.apply_all();
        optimizer_.drop_gradients();
    }

    StepStats finish_step(double learning_rate) override {
        // Only a step without a single target token leaves something to do here.
        optimizer_.apply_all();
        StepStats stats;
        stats.grad_norm = optimizer_.gradient_norm();
        stats.finite = std::isfinite(stats.grad_norm);
        if (!stats.finite) {
            optimizer_.drop_gradients();
            return stats;
        }
        // torch.nn.utils.clip_grad_norm_
        const double limit = training_.max_grad_norm;
        const double clip = limit > 0 ? std::min(1.0, limit / (stats.grad_norm + 1e-6)) : 1.0;
        optimizer_.finish_step(learning_rate, clip);
        return stats;
    }

    bool apply_one_pending_update() override { return optimizer_.apply_next(); }

    EvalStats evaluate(const TokenBatch& batch) override {
        optimizer_.apply_all();
        MicroBatch micro_batch;
        // Not owned: `batch` outlives the staging.
        micro_batch.tokens = std::shared_ptr<const TokenBatch>(std::shared_ptr<void>(), &batch);
        const std::unique_ptr<TensorBatch> staged = stage_micro_batch(micro_batch, staging_options(false));
        EvalStats stats;
        stats.target_tokens = staged->target_tokens;
        if (staged->target_tokens > 0) {
            stats.ce_sum = cross_entropy_sum(network_, *staged);
        }
        return stats;
    }

    std::shared_ptr<const StudentSnapshot> snapshot(const RunState& state) override {
        optimizer_.apply_all();
        SnapshotContent content;
        content.run = state;
        content.adam_steps = optimizer_.steps();
        content.shape_json = shape_json();
        content.config_json = network_.config_json();
        content.generation_config_json = network_.generation_config_json();
        content.weights = host_copies(weights());
        content.optimizer = host_copies(optimizer_.state());
        for (const auto& [name, tensor] : content.weights) {
            content.saved_dtypes.push_back(network_.saved_dtype(name));
        }
        content.tokenizer_folder = tokenizer_folder_;
        return make_student_snapshot(std::move(content));
    }

    Result<RunState> restore(const fs::path& checkpoint_folder) override {
        // Pending updates must not run over what is read; when nothing is read they may run as they would have.
        optimizer_.apply_all();
        Result<CheckpointManifest> manifest =
            load_student_checkpoint(checkpoint_folder, shape_json(), weights(), optimizer_.state());
        if (!manifest) {
            return manifest.error();
        }
        optimizer_.reset(manifest->adam_steps);
        return std::move(manifest->run);
    }

    [[nodiscard]] std::uint64_t parameter_count() const override { return network_.parameter_count(); }
    [[nodiscard]] std::uint32_t vocabulary_size() const override {
        return static_cast<std::uint32_t>(network_.config().vocab_size);
    }
    [[nodiscard]] std::uint32_t max_positions() const override {
        return static_cast<std::uint32_t>(network_.config().max_position_embeddings);
    }

  private:
    [[nodiscard]] StagingOptions staging_options(bool with_teacher) const {
        return StagingOptions{network_.config().vocab_size, with_teacher, training_.temperature, network_.device()};
    }

    [[nodiscard]] std::string shape_json() const { return to_config_json(network_.config(), "", "float32"); }

    [[nodiscard]] NamedTensors weights() const {
        NamedTensors all;
        for (const ParameterGroup& group : network_.groups()) {
            for (const auto& [name, parameter] : group.parameters) {
                all.emplace_back(name, parameter.detach());
            }
        }
        return all;
    }

    static NamedTensors host_copies(const NamedTensors& tensors) {
        NamedTensors copies;
        copies.reserve(tensors.size());
        for (const auto& [name, tensor] : tensors) {
            copies.emplace_back(name, tensor.to(torch::kCPU, torch::kFloat, /*non_blocking=*/false, /*copy=*/true));
        }
        return copies;
    }

    LlamaNetwork network_;
    TrainingSpec training_;
    bool with_teacher_;
    fs::path tokenizer_folder_;
    LayeredAdamW optimizer_;
};

Result<LlamaNetwork> random_network(const StudentSpec& spec, std::uint64_t seed, const torch::Device& device) {
    std::string base;
    if (!spec.model.empty()) {
        const fs::path path = fs::path(spec.model) / "config.json";
        Result<std::string> text = read_text_file(path, kConfigSizeLimit);
        if (!text) {
            return invalid_input("student.model: " + text.error().message);
        }
        base = std::move(*text);
    } else if (!spec.config_json) {
        return invalid_input("student.config or student.model is required with init random");
    }
    const std::string where = spec.config_json ? "student.config" : (fs::path(spec.model) / "config.json").string();
    Result<std::string> merged = merge_config_json(base, spec.config_json.value_or(""), where);
    if (!merged) {
        return merged.error();
    }
    const Result<LlamaConfig> config = parse_llama_config(*merged, where);
    if (!config) {
        return config.error();
    }
    LlamaNetwork network(*config, resolve_dtype(spec.dtype, device), device);
    network.set_source_config(std::move(*merged));
    network.initialize_random(seed);
    return network;
}

Result<LlamaNetwork> pretrained_network(const StudentSpec& spec, const torch::Device& device) {
    if (spec.model.empty()) {
        return invalid_input("student.model is required with init pretrained");
    }
    std::error_code code;
    if (!fs::is_directory(spec.model, code)) {
        return invalid_input("student.model: " + spec.model + " is not a folder");
    }
    const ComputeDtype dtype = resolve_dtype(spec.dtype, device);
    if (!spec.config_json) {
        return LlamaNetwork::open(spec.model, dtype, device);
    }
    const Result<std::string> base = read_text_file(fs::path(spec.model) / "config.json", kConfigSizeLimit);
    if (!base) {
        return base.error();
    }
    const Result<LlamaConfig> config = merge_llama_config(*base, *spec.config_json, "student.config");
    if (!config) {
        return config.error();
    }
    LlamaNetwork network(*config, dtype, device);
    if (const Result<void> loaded = network.load(spec.model); !loaded) {
        return loaded.error();
    }
    return network;
}

}  // namespace

Result<std::unique_ptr<Student>> make_llama_student(const LlamaStudentOptions& options) {
    try {
        const torch::Device device(options.device);
        Result<LlamaNetwork> network = options.student.init == StudentInit::random
                                           ? random_network(options.student, options.training.seed, device)
                                           : pretrained_network(options.student, device);
        if (!network) {
            return network.error();
        }
        const std::int64_t positions = network->config().max_position_embeddings;
        if (static_cast<std::int64_t>(options.sequence_length) > positions) {
            return invalid_input("dataset.sequence_length " + std::to_string(options.sequence_length) +
                                 " exceeds the student's max_position_embeddings of " + std::to_string(positions));
        }
        return std::unique_ptr<Student>(std::make_unique<LlamaStudent>(std::move(*network), options));
    } catch (const c10::Error& error) {
        // Allocation, or a device that is not there: torch says which.
        return invalid_input("student: " + std::string(error.what_without_backtrace()));
    }
}

}  // namespace distilld::models

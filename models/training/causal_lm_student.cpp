#include "models/training/causal_lm_student.hpp"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "models/families/student_config.hpp"
#include "models/losses/activation_bytes.hpp"
#include "models/losses/distill_loss.hpp"
#include "models/network/causal_lm.hpp"
#include "models/network/device.hpp"
#include "models/network/gradient_order.hpp"
#include "models/optimizers/layered_optimizer.hpp"
#include "models/training/out_of_memory.hpp"
#include "models/training/rank_step.hpp"
#include "models/training/sample_tokens.hpp"
#include "models/training/staging.hpp"
#include "models/training/student_network.hpp"
#include "models/training/student_on_device.hpp"
#include "models/training/student_snapshot.hpp"
#include "models/training/teacher_head_tensor.hpp"
#include "models/training/train_step.hpp"

namespace distilld::models {
namespace {

namespace fs = std::filesystem;
using torch::Tensor;

class CausalLmStudent final : public Student {
  public:
    CausalLmStudent(std::unique_ptr<CausalLm> network, const CausalLmStudentOptions& options)
        : network_(std::move(network)),
          training_(options.training),
          with_teacher_(options.with_teacher),
          tokenizer_{options.student.model, std::nullopt, false},
          order_(std::make_shared<GradientOrder>(
              network_->config().decoder.tie_word_embeddings ? network_->head().master : Tensor(),
              options.ranks ? groups_of_rank(training_.gradient_groups, options.ranks->rank(), options.ranks->count())
                            : GroupRange())),
          ranks_(options.ranks ? std::make_unique<RankStep>(*options.ranks, training_, network_->groups(),
                                                            type_of_matrices(options.student), order_)
                               : nullptr),
          optimizer_(network_->groups(), make_update_rule(optimizer_options(training_)), update_mode(),
                     [this](std::size_t group) { return !ranks_ || ranks_->owns(group); }) {
        if (ranks_) {
            ranks_->set_optimizer(optimizer_);
        }
        network_->recompute_blocks(training_.gradient_checkpointing);
        if (!network_->device().is_cpu()) {
            ring_ = std::make_unique<StagingRing>(network_->device());
        }
    }

    ~CausalLmStudent() override { ranks_.reset(); }  // its thread uses the optimizer
    CausalLmStudent(const CausalLmStudent&) = delete;
    CausalLmStudent& operator=(const CausalLmStudent&) = delete;

    std::unique_ptr<StagedBatch> stage(MicroBatch batch) override {
        StagingOptions options = staging_options(with_teacher_);
        options.ring = ring_.get();
        std::unique_ptr<TensorBatch> staged = stage_micro_batch(batch, options);
        const std::uint32_t group = gradient_group(training_, batch);
        staged->ticket = std::make_unique<Ticket>(order_, staged_++, group);
        present_.resize(training_.gradient_groups, false);
        present_[group] = present_[group] || staged->target_tokens > 0;
        if (batch.ends_step) {
            staged->present_in_step = std::exchange(present_, {});
        }
        return staged;
    }

    MicroBatchStats train(StagedBatch& batch) override {
        const auto& staged = dynamic_cast<const TensorBatch&>(batch);
        MicroBatchStats stats;
        stats.target_tokens = staged.target_tokens;
        if (ranks_ && !staged.present_in_step.empty()) {
            ranks_->begin(staged.present_in_step, staged.ticket->number());
        }
        if (staged.target_tokens == 0) {
            staged.ticket->end();
            return stats;
        }
        if (staged.copies) {
            staged.copies->use();
        }
        DistillLossOptions options;
        options.kd_ratio = training_.kd_ratio;
        options.temperature = training_.temperature;
        options.divergence = divergence_of_beta(training_.beta);
        const auto before = [&](std::size_t group) {
            const std::lock_guard lock(updating_);
            if (ranks_) {
                ranks_->arrive(group);
            }
            if (optimizer_.pending()) {
                const auto began = std::chrono::steady_clock::now();
                optimizer_.apply(group);
                stats.update_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
            }
        };
        try {
            losses_.add(*staged.ticket, accumulate_gradients(*network_, staged, options, before));
        } catch (const std::exception& error) {
            if (!is_out_of_memory(error)) {
                throw;
            }
            throw OutOfDeviceMemory(no_memory(staged, error));
        }
        return stats;
    }

    void discard_gradients() override {
        apply_updates();
        order_->drop();
        optimizer_.drop_gradients();
        losses_.clear();
    }

    StepStats finish_step(double learning_rate) override {
        // Only a step without any target token leaves updates pending here.
        apply_updates();
        if (!ranks_) {
            order_->complete();
            return close_step(losses_, optimizer_, learning_rate, training_.max_grad_norm);
        }
        const bool any = ranks_->complete(losses_);
        StepStats stats = losses_.read(ranks_->gradient_norm());
        losses_.clear();
        ranks_->agree(stats);
        update_parameters(stats, optimizer_, learning_rate, training_.max_grad_norm, any);
        ranks_->share_weights();
        return stats;
    }

    StepOfAll of_all_ranks(const StepSums& mine, const RankCounters& figures) override {
        return ranks_ ? ranks_->sum(mine, figures) : StepOfAll{mine, {}};
    }

    void attend_last_snapshot() override {
        if (ranks_) {
            ranks_->attend_last_snapshot();
        }
    }

    bool apply_one_pending_update() override { return optimizer_.apply_next(); }

    EvalStats evaluate(const MicroBatch& batch) override {
        apply_updates();
        std::unique_ptr<TensorBatch> answered;
        if (batch.targets) {
            StagingOptions options = staging_options(true);
            options.temperature = 1;  // makes runs with other temperatures comparable
            answered = stage_micro_batch(batch, options);
            const auto& mask = batch.targets->loss_mask.bytes;
            if (std::ranges::find(mask, std::byte{0}) == mask.end()) {
                return evaluation_sums(*network_, *answered, answered.get());
            }
        }
        const std::unique_ptr<TensorBatch> staged = stage_micro_batch(batch, staging_options(false));
        return evaluation_sums(*network_, *staged, answered.get());
    }

    std::vector<std::int32_t> sample(const std::vector<std::int32_t>& prompt, const SampleOptions& options) override {
        apply_updates();
        return sample_tokens(*network_, prompt, options);
    }

    std::shared_ptr<const StudentSnapshot> snapshot(const RunState& state) override {
        apply_updates();
        SnapshotContent content;
        content.run = state;
        content.adam_steps = optimizer_.steps();
        content.canonical_config = network_->canonical_config();
        ModelExport model = network_->model_export(exported_special_tokens());
        RankStep::Collected collected = ranks_ ? ranks_->collect_state() : RankStep::Collected();
        for (Parameter& parameter : model.parameters) {
            const auto other = std::ranges::find(collected.masters, parameter.name, &NamedTensor::name);
            parameter.master = other != collected.masters.end() ? other->tensor : host_copy(parameter.master);
        }
        model.tokenizer_folder = tokenizer_.files;
        content.weights = trained_masters(model.parameters);
        content.write_model = [model = std::move(model)](const fs::path& folder) {
            return write_model_folder(folder, model);
        };
        if (ranks_) {
            content.optimizer = std::move(collected.optimizer);
        } else {
            content.optimizer = optimizer_.state();
            for (NamedTensor& named : content.optimizer) {
                named.tensor = host_copy(named.tensor);
            }
        }
        return make_student_snapshot(std::move(content));
    }

    Result<void> set_teacher_head(const TeacherHead& head) override {
        if (head.rows > vocabulary_size()) {
            return teacher_error("the teacher's head is over " + std::to_string(head.rows) +
                                 " tokens, the student has " + std::to_string(vocabulary_size()));
        }
        teacher_head_ = teacher_head_tensor(head, network_->dtype(), network_->device());
        return {};
    }

    void set_export_tokenizer(ExportTokenizer tokenizer) override { tokenizer_ = std::move(tokenizer); }

    bool round_to_export() override {
        apply_updates();
        const torch::NoGradGuard no_grad;
        bool rounded = false;
        for (ParameterGroup& group : network_->groups()) {
            for (Parameter& parameter : group.parameters) {
                if (parameter.trainable && parameter.saved != parameter.master.scalar_type()) {
                    if (!parameter.converted->alone) {  // otherwise the copy is rounded
                        parameter.master.copy_(parameter.master.to(parameter.saved));
                    }
                    rounded = true;
                }
            }
        }
        return rounded;
    }

    Result<RunState> restore(const fs::path& checkpoint_folder) override {
        // Pending updates must run before the read, or they would change its result. If it fails, they were due anyway.
        apply_updates();
        Result<CheckpointManifest> manifest =
            load_student_checkpoint(checkpoint_folder, network_->canonical_config(),
                                    trained_masters(all_parameters(network_->groups())), optimizer_.state());
        if (!manifest) {
            return manifest.error();
        }
        optimizer_.reset(manifest->adam_steps);
        return std::move(manifest->run);
    }

    /// Counts the trainable parameters: those that checkpoints and exports hold.
    [[nodiscard]] std::uint64_t activation_bytes(std::uint64_t positions) const override {
        const DecoderConfig& decoder = network_->config().decoder;
        return models::activation_bytes(decoder, positions, c10::elementSize(to_scalar_type(network_->dtype())),
                                        training_.gradient_checkpointing, network_->device().is_cpu());
    }
    [[nodiscard]] std::uint64_t parameter_count() const override { return trainable_count(network_->groups()); }
    [[nodiscard]] std::uint64_t network_parameter_count() const override {
        return models::parameter_count(network_->groups());
    }
    [[nodiscard]] std::uint32_t vocabulary_size() const override {
        return static_cast<std::uint32_t>(network_->vocabulary_size());
    }
    [[nodiscard]] std::uint32_t max_positions() const override {
        return static_cast<std::uint32_t>(network_->max_positions());
    }

  private:
    /// A rank that owns a part of the weights sends them one group after the other.
    [[nodiscard]] UpdateMode update_mode() const {
        const bool shares = ranks_ && training_.shard_optimizer;
        return shares || (training_.parallel && training_.overlap_optimizer) ? UpdateMode::lazy : UpdateMode::serial;
    }

    void apply_updates() {
        optimizer_.apply_all();
        if (ranks_) {
            ranks_->arrive_all();
        }
    }

    /// In forward. Ternary ones are made of the masters.
    [[nodiscard]] torch::ScalarType type_of_matrices(const StudentSpec& spec) const {
        return spec.quantization == Quantization::ternary ? master_type(network_->dtype())
                                                          : to_scalar_type(network_->dtype());
    }

    [[nodiscard]] StagingOptions staging_options(bool with_teacher) const {
        return StagingOptions{network_->vocabulary_size(), with_teacher, training_.temperature, network_->device(),
                              teacher_head_};
    }

    /// nullopt: the config's own special tokens stay.
    [[nodiscard]] std::optional<SpecialTokens> exported_special_tokens() const {
        if (!tokenizer_.special || !tokenizer_.of_the_model) {
            return tokenizer_.special;
        }
        const auto& ends = network_->config().decoder.eos_token_ids;
        const bool agree = std::ranges::all_of(
            tokenizer_.special->eos, [&](std::int64_t id) { return std::ranges::find(ends, id) != ends.end(); });
        return agree ? std::nullopt : tokenizer_.special;
    }

    [[nodiscard]] Error no_memory(const TensorBatch& batch, const std::exception& error) const {
        return invalid_input("/training/batch_size: a micro-batch of " + std::to_string(batch.input_ids.numel()) +
                             " positions does not fit into the memory of " + network_->device().str() +
                             "; take fewer rows (and more micro_batches), shorter rows, or "
                             "training.gradient_checkpointing: " +
                             memory_words(error));
    }

    std::unique_ptr<CausalLm> network_;
    TrainingSpec training_;
    bool with_teacher_;
    ExportTokenizer tokenizer_;
    Tensor teacher_head_;        // undefined: the teacher sends no hidden states
    std::uint64_t staged_ = 0;   // used by the staging thread
    std::vector<bool> present_;  // used by the staging thread: groups with targets in the step
    std::shared_ptr<GradientOrder> order_;
    std::mutex updating_;                // of optimizer_ in train()
    StepLosses losses_;                  // of the current step
    std::unique_ptr<StagingRing> ring_;  // used by the staging thread; null on the CPU
    std::unique_ptr<RankStep> ranks_;    // null: there is one rank
    LayeredOptimizer optimizer_;
};

}  // namespace

Result<std::unique_ptr<Student>> make_student_on(const torch::Device& device, const CausalLmStudentOptions& options) {
    try {
        if (!device.is_cpu()) {
            make_repeatable();
        }
        Result<std::unique_ptr<CausalLm>> network =
            make_student_network(options.student, options.training, device, options.families, options.max_bytes);
        if (!network) {
            return network.error();
        }
        for (const std::string& warning : (*network)->config().warnings) {
            if (options.on_warning) {
                options.on_warning(warning);
            }
        }
        if (Result<void> fits = check_positions(options.sequence_length, (*network)->max_positions()); !fits) {
            return fits.error();
        }
        return std::unique_ptr<Student>(std::make_unique<CausalLmStudent>(std::move(*network), options));
    } catch (const c10::Error& error) {
        // For example a failed allocation; torch's message says what failed.
        return invalid_input("/student: " + std::string(error.what_without_backtrace()));
    }
}

Result<std::unique_ptr<Student>> make_causal_lm_student(const CausalLmStudentOptions& options) {
    const Result<torch::Device> device = resolve_device(options.student.device);
    return device ? make_student_on(*device, options) : device.error();
}

}  // namespace distilld::models

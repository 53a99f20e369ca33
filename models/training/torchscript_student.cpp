#include "models/training/torchscript_student.hpp"

#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json_text.hpp"
#include "base/scope_exit.hpp"
#include "models/losses/tensor_loss.hpp"
#include "models/network/compute_dtype.hpp"
#include "models/network/device.hpp"
#include "models/network/dropout.hpp"
#include "models/network/gradient_order.hpp"
#include "models/optimizers/layered_optimizer.hpp"
#include "models/torchscript/module_export.hpp"
#include "models/torchscript/script_module.hpp"
#include "models/training/out_of_memory.hpp"
#include "models/training/student_snapshot.hpp"
#include "models/training/train_step.hpp"

namespace distilld::models {
namespace {

namespace fs = std::filesystem;
using torch::Tensor;

/// A micro-batch of samples on the student's device.
struct SampleBatch final : StagedBatch {
    std::uint64_t number = 0;
    std::uint32_t rows = 0;
    double share = 0;  ///< of the step's samples
    std::vector<Tensor> inputs;
    std::vector<Tensor> targets;  ///< of each term; undefined: the teacher was not asked
    std::unique_ptr<Ticket> ticket;
};

/// The terms that have a target, as means over the samples.
struct TermValues {
    Tensor loss;  ///< weighted sum; undefined: no term has a target
    Tensor kd;    ///< the part of terms with the teacher
    Tensor ce;    ///< the part of terms with the data
};

/// Gives a module's buffers their values back when it is destroyed.
class BufferKeeper {
  public:
    explicit BufferKeeper(const torch::jit::Module& module) {
        for (const auto& buffer : module.named_buffers()) {
            buffers_.emplace_back(buffer.name, buffer.value, buffer.value.clone());
        }
    }
    ~BufferKeeper() {
        const torch::NoGradGuard no_grad;
        for (auto& [name, buffer, value] : buffers_) {
            buffer.copy_(value);
        }
    }
    BufferKeeper(const BufferKeeper&) = delete;
    BufferKeeper& operator=(const BufferKeeper&) = delete;

    /// The name of one that has other values by now; empty: there is none.
    [[nodiscard]] std::string changed() const {
        const auto found = std::ranges::find_if(
            buffers_, [](const auto& one) { return !torch::equal(std::get<1>(one), std::get<2>(one)); });
        return found == buffers_.end() ? "" : std::get<0>(*found);
    }

  private:
    std::vector<std::tuple<std::string, Tensor, Tensor>> buffers_;
};

class TorchScriptStudent final : public Student {
  public:
    TorchScriptStudent(std::unique_ptr<ScriptModule> script, const TrainingSpec& training, ComputeDtype dtype,
                       torch::Device device)
        : script_(std::move(script)),
          training_(training),
          master_type_(master_type(dtype)),
          device_(std::move(device)),
          flags_(training_flags(module())),
          originals_(script_->take_originals()),
          groups_(make_groups()),
          optimizer_(groups_, make_update_rule(optimizer_options(training_)), UpdateMode::serial),
          order_(std::make_shared<GradientOrder>()) {
        module().train();
    }

    Result<void> try_out(const MicroBatch& batch) override {
        try {
            const BufferKeeper kept(module());
            find_needs(*batch.tokens, kept);
            const auto staged = staged_samples(batch);
            const TermValues values = losses_of(*staged);
            // Terms with the teacher are checked when its first answer is there.
            if (values.loss.defined()) {
                static_cast<void>(gradients_of(values.loss));
            }
        } catch (const ErrorException& error) {
            return error.error();
        }
        return {};
    }

    std::string needs_order() const override { return needs_order_; }

    std::unique_ptr<StagedBatch> stage(MicroBatch batch) override {
        auto staged = staged_samples(batch);
        staged->ticket = std::make_unique<Ticket>(order_, staged_++, gradient_group(training_, batch));
        return staged;
    }

    MicroBatchStats train(StagedBatch& batch) override {
        const auto& samples = dynamic_cast<const SampleBatch&>(batch);
        const MicroBatchScope scope(samples.number, samples.ticket.get());
        MicroBatchStats stats;
        stats.target_tokens = samples.rows;
        try {
            if (draws_) {
                torch::manual_seed(dropout_key(training_.seed, samples.number, 0));
            }
            const TermValues values = losses_of(samples);
            std::vector<Tensor> gradients = gradients_of(values.loss * samples.share);
            for (std::size_t i = 0; i < gradients.size(); ++i) {
                if (gradients[i].defined()) {
                    add_gradient(trained_[i].master, gradients[i]);
                }
            }
            const double rows = samples.rows;
            const Tensor loss = values.loss.detach().to(torch::kDouble);
            losses_.add(*samples.ticket, {loss * rows, values.kd * rows, values.ce * rows, Tensor(), Tensor()});
        } catch (const std::exception& error) {
            if (!is_out_of_memory(error)) {
                throw;
            }
            throw OutOfDeviceMemory(invalid_input("/training/batch_size: a micro-batch of " +
                                                  std::to_string(samples.rows) +
                                                  " samples does not fit into the memory of " + device_.str() +
                                                  "; take fewer (and more micro_batches): " + memory_words(error)));
        }
        return stats;
    }

    void discard_gradients() override {
        order_->drop();
        optimizer_.drop_gradients();
        losses_.clear();
    }

    StepStats finish_step(double learning_rate) override {
        order_->complete();
        const StepStats stats = close_step(losses_, optimizer_, learning_rate, training_.max_grad_norm);
        if (stats.finite) {
            refresh_copies();
        }
        return stats;
    }

    bool apply_one_pending_update() override { return false; }

    EvalStats evaluate(const MicroBatch& batch) override {
        const torch::NoGradGuard no_grad;
        const ScopeExit back([this] { module().train(); });
        module().eval();
        const TermValues values = losses_of(*staged_samples(batch));
        EvalStats stats;
        if (values.loss.defined()) {
            stats.target_tokens = batch.tokens->rows;
            stats.ce_sum = values.loss.item<double>() * batch.tokens->rows;
        }
        return stats;
    }

    std::shared_ptr<const StudentSnapshot> snapshot(const RunState& state) override {
        const torch::NoGradGuard no_grad;
        // The copy has the masters as its parameters, and both files are written from it.
        torch::jit::Module copy = module().deepcopy();
        restore_flags(copy, flags_);
        SnapshotContent content;
        content.run = state;
        content.adam_steps = optimizer_.steps();
        content.canonical_config = identity();
        std::map<std::string, Tensor> masters;
        for (const Parameter& parameter : trained_) {
            masters.emplace(parameter.name, parameter.master);
        }
        std::map<std::string, bool> with_gradient;
        for (const auto& parameter : module().named_parameters()) {
            with_gradient.emplace(parameter.name, parameter.value.requires_grad());
        }
        for (const auto& parameter : copy.named_parameters()) {
            Tensor tensor = parameter.value;
            const auto trained = masters.find(parameter.name);
            tensor.set_data(trained == masters.end() ? exported_value(parameter.name, tensor)
                                                     : host_copy(trained->second));
            tensor.set_requires_grad(with_gradient.at(parameter.name));
            if (trained != masters.end()) {
                content.weights.push_back({parameter.name, tensor.detach()});
            }
        }
        for (const auto& buffer : copy.named_buffers()) {
            Tensor tensor = buffer.value;
            content.weights.push_back({buffer.name, host_copy(tensor)});
            tensor.set_data(exported_value(buffer.name, tensor));
        }
        content.optimizer = optimizer_.state();
        for (NamedTensor& named : content.optimizer) {
            named.tensor = host_copy(named.tensor);
        }
        content.write_model = [copy, types = script_->saved_types()](const fs::path& folder) {
            return write_module(folder, copy, types);
        };
        return make_student_snapshot(std::move(content));
    }

    Result<RunState> restore(const fs::path& checkpoint_folder) override {
        NamedTensors weights = trained_masters(trained_);
        for (const auto& buffer : module().named_buffers()) {
            weights.push_back({buffer.name, buffer.value.detach()});
        }
        Result<CheckpointManifest> manifest =
            load_student_checkpoint(checkpoint_folder, identity(), weights, optimizer_.state());
        if (!manifest) {
            return manifest.error();
        }
        optimizer_.reset(manifest->adam_steps);
        refresh_copies();
        return std::move(manifest->run);
    }

    [[nodiscard]] std::uint64_t parameter_count() const override { return trainable_count(groups_); }
    [[nodiscard]] std::uint64_t network_parameter_count() const override {
        std::uint64_t count = 0;
        for (const Tensor& parameter : script_->module().parameters()) {
            count += static_cast<std::uint64_t>(parameter.numel());
        }
        return count;
    }
    [[nodiscard]] std::uint32_t vocabulary_size() const override { return 0; }
    [[nodiscard]] std::uint32_t max_positions() const override { return 1; }

  private:
    [[nodiscard]] torch::jit::Module& module() const { return script_->module(); }

    /// Fills `computed_` and `trained_`. A tensor under several names counts under the first.
    std::vector<ParameterGroup> make_groups() {
        const torch::NoGradGuard no_grad;
        std::vector<ParameterGroup> groups(1);
        groups.front().name = "module";
        for (const auto& named : module().named_parameters()) {
            const Tensor& tensor = named.value;
            const bool known =
                std::ranges::any_of(computed_, [&tensor](const Tensor& other) { return other.is_same(tensor); });
            if (!tensor.requires_grad() || !tensor.is_floating_point() || known) {
                continue;
            }
            Parameter& parameter = groups.front().parameters.emplace_back();
            parameter.name = named.name;
            parameter.decays = tensor.dim() > 1;
            parameter.saved = script_->saved_types().at(named.name);
            const bool same = tensor.scalar_type() == master_type_;
            const auto original = originals_.find(named.name);
            const Tensor& first = original == originals_.end() ? tensor : original->second;
            parameter.master = same ? tensor : first.detach().to(master_type_, false, /*copy=*/true).requires_grad_();
            originals_.erase(named.name);
            computed_.push_back(tensor);
            trained_.push_back(parameter);
        }
        return groups;
    }

    /// What an export has for a tensor that may be rounded: the file's value, unless training has changed it.
    [[nodiscard]] Tensor exported_value(const std::string& name, const Tensor& now) const {
        const Tensor value = host_copy(now);
        const auto found = originals_.find(name);
        const Tensor original = found == originals_.end() ? value : host_copy(found->second);
        return torch::equal(original.to(value.scalar_type()), value) ? original : value;
    }

    /// Copies the masters into the parameters that compute in another dtype.
    void refresh_copies() {
        const torch::NoGradGuard no_grad;
        for (std::size_t i = 0; i < trained_.size(); ++i) {
            if (!computed_[i].is_same(trained_[i].master)) {
                computed_[i].copy_(trained_[i].master);
            }
        }
    }

    [[nodiscard]] std::unique_ptr<SampleBatch> staged_samples(const MicroBatch& batch) const {
        auto staged = std::make_unique<SampleBatch>();
        const TokenBatch& samples = *batch.tokens;
        staged->number = samples.number;
        staged->rows = samples.rows;
        staged->share = samples.rows / std::max(static_cast<double>(batch.step_target_tokens), 1.0);
        staged->inputs = script_->inputs_of(samples);
        for (std::size_t i = 0; i < training_.losses.size(); ++i) {
            staged->targets.push_back(target_of(i, batch));
        }
        return staged;
    }

    /// Undefined: it is the teacher's, who was not asked.
    [[nodiscard]] Tensor target_of(std::size_t i, const MicroBatch& batch) const {
        const LossTerm& term = training_.losses[i];
        const auto at_teacher = name_at_teacher(term);
        if (at_teacher && !batch.targets) {
            return {};
        }
        const SampleTensor* found = at_teacher ? find_tensor(batch.targets->tensors, *at_teacher)
                                               : find_tensor(batch.tokens->tensors, *name_in_data(term));
        if (found == nullptr) {
            throw ErrorException(Error{at_teacher ? ErrorKind::teacher : ErrorKind::invalid_input,
                                       field_of(i, "target") + ": is \"" + term.target + "\", which the " +
                                           (at_teacher ? "teacher did not send" : "data does not have")});
        }
        return to_tensor(*found, batch.tokens->rows).to(device_);
    }

    static std::string field_of(std::size_t term, const char* name) {
        return "/training/losses/" + std::to_string(term) + "/" + name;
    }

    [[nodiscard]] TermValues losses_of(const SampleBatch& batch) const {
        const std::vector<Tensor> outputs = script_->run(batch.inputs, batch.rows);
        const std::vector<std::string>& names = script_->names().outputs;
        TermValues values;
        values.kd = values.ce = torch::zeros({}, torch::TensorOptions(torch::kDouble).device(device_));
        for (std::size_t i = 0; i < training_.losses.size(); ++i) {
            const LossTerm& term = training_.losses[i];
            const Tensor& target = batch.targets[i];
            if (!target.defined()) {
                continue;
            }
            const auto name = std::ranges::find(names, term.output);
            const Tensor output = outputs.at(static_cast<std::size_t>(name - names.begin())).to(master_type_);
            if (const std::string defect = shape_defect(term, output, target); !defect.empty()) {
                throw ErrorException(invalid_input(field_of(i, "target") + ": \"" + term.target + "\" " + defect));
            }
            Tensor value;
            try {
                value = tensor_loss(term, output, target) * term.weight;
            } catch (const c10::Error& error) {
                throw script_->failure("the loss " + std::to_string(i) + " of /training/losses failed", error);
            }
            Tensor& part = name_at_teacher(term) ? values.kd : values.ce;
            part = part + value.detach().to(torch::kDouble);
            values.loss = values.loss.defined() ? values.loss + value : value;
        }
        return values;
    }

    [[nodiscard]] std::vector<Tensor> gradients_of(const Tensor& loss) const {
        if (!loss.requires_grad()) {
            throw ErrorException(invalid_input("/training/losses: no term depends on a parameter that is trained"));
        }
        try {
            return torch::autograd::grad({loss}, computed_, {}, /*retain_graph=*/false, /*create_graph=*/false,
                                         /*allow_unused=*/true);
        } catch (const c10::Error& error) {
            if (is_out_of_memory(error)) {
                throw;
            }
            throw script_->failure("backward failed", error);
        }
    }

    /// Finds out whether forward() draws random numbers or changes buffers.
    void find_needs(const TokenBatch& batch, const BufferKeeper& buffers) {
        const torch::NoGradGuard no_grad;
        torch::manual_seed(training_.seed);
        const Tensor generator = random_state();
        const std::vector<Tensor> outputs = script_->run(script_->inputs_of(batch), batch.rows);
        draws_ = !torch::equal(generator, random_state());
        needs_order_ = draws_ ? "its forward() draws random numbers" : "";
        if (const std::string name = buffers.changed(); !name.empty()) {
            needs_order_ = "its forward() changes the buffer " + name;
        }
        for (std::size_t k = 0; k < outputs.size(); ++k) {
            if (!all_finite(outputs[k])) {
                throw ErrorException(invalid_input("/student/outputs: \"" + script_->names().outputs[k] +
                                                   "\" is not finite for the first samples of the data"));
            }
        }
    }

    [[nodiscard]] Tensor random_state() const {
        at::Generator generator =
            device_.is_cpu() ? at::detail::getDefaultCPUGenerator() : at::globalContext().defaultGenerator(device_);
        return generator.get_state();
    }

    /// What a checkpoint must agree with; its shapes are compared too.
    [[nodiscard]] std::string identity() const {
        return to_text(boost::json::object{{"model_type", "torchscript"}, {"code_sha256", script_->code_hash()}});
    }

    std::unique_ptr<ScriptModule> script_;
    TrainingSpec training_;
    torch::ScalarType master_type_;
    torch::Device device_;
    std::vector<bool> flags_;
    std::map<std::string, Tensor> originals_;  // of parameters that are not trained, and of buffers
    std::vector<Tensor> computed_;    // the module's parameters that are trained; the masters, or copies of them
    std::vector<Parameter> trained_;  // in the same order
    std::vector<ParameterGroup> groups_;
    LayeredOptimizer optimizer_;
    std::shared_ptr<GradientOrder> order_;
    std::uint64_t staged_ = 0;  // used by the staging thread
    StepLosses losses_;         // of the current step
    bool draws_ = false;        // found by try_out()
    std::string needs_order_;
};

}  // namespace

Result<std::unique_ptr<Student>> make_torchscript_student(const StudentSpec& student, const TrainingSpec& training) {
    const Result<torch::Device> device = resolve_device(student.device);
    if (!device) {
        return device.error();
    }
    if (!device->is_cpu()) {
        make_repeatable();
    }
    const ComputeDtype dtype = resolve_dtype(student.dtype, *device);
    Result<std::unique_ptr<ScriptModule>> script =
        ScriptModule::load({"/student/model", "/student/", student.model, student.inputs, student.outputs},
                           to_scalar_type(dtype), *device);
    if (!script) {
        return script.error();
    }
    return std::unique_ptr<Student>(std::make_unique<TorchScriptStudent>(std::move(*script), training, dtype, *device));
}

}  // namespace distilld::models

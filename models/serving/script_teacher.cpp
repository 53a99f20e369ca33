#include <torch/types.h>
#include <torch/utils.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/cores.hpp"
#include "models/network/compute_dtype.hpp"
#include "models/network/compute_thread_scope.hpp"
#include "models/network/device.hpp"
#include "models/serving/local_engine.hpp"
#include "models/torchscript/script_module.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

ElementType element_type(torch::ScalarType type) {
    switch (type) {
        case torch::kHalf:
            return ElementType::f16;
        case torch::kBFloat16:
            return ElementType::bf16;
        case torch::kDouble:
            return ElementType::f64;
        default:
            return ElementType::f32;
    }
}

class ScriptTeacher final : public TeacherModule {
  public:
    ScriptTeacher(std::unique_ptr<ScriptModule> script, ServedModel model)
        : script_(std::move(script)), model_(std::move(model)) {
        script_->module().eval();
        for (const Tensor& parameter : script_->module().parameters()) {
            model_.parameters += static_cast<std::uint64_t>(parameter.numel());
        }
    }

    Result<TeacherTargets> answer(const TokenBatch& samples) override {
        const torch::NoGradGuard no_grad;
        TeacherTargets targets;
        targets.kind = TeacherTargets::Kind::tensors;
        targets.rows = samples.rows;
        targets.columns = samples.columns;
        auto held = std::make_shared<std::vector<Tensor>>();
        try {
            *held = script_->run(script_->inputs_of(samples), samples.rows);
        } catch (const ErrorException& error) {
            return error.error();
        }
        for (std::size_t i = 0; i < held->size(); ++i) {
            Tensor& output = (*held)[i];
            output = output.to(torch::kCPU).contiguous();
            SampleTensor& tensor = targets.tensors.emplace_back();
            tensor.name = script_->names().outputs[i];
            tensor.sample_shape.assign(output.sizes().begin() + 1, output.sizes().end());
            tensor.values = {element_type(output.scalar_type()),
                             {static_cast<const std::byte*>(output.const_data_ptr()), output.nbytes()}};
            targets.held_bytes += output.nbytes();
        }
        targets.owner = std::move(held);
        return targets;
    }

    const ServedModel& model() const override { return model_; }

  private:
    std::unique_ptr<ScriptModule> script_;
    ServedModel model_;
};

}  // namespace

Result<std::unique_ptr<TeacherModule>> load_module_engine(const TeacherSpec& spec, const ModuleFields& fields,
                                                          const std::string& device_name) {
    if (spec.threads != 0) {
        at::set_num_threads(static_cast<int>(spec.threads));
    }
    const Result<torch::Device> device = resolve_device(device_name);
    if (!device) {
        return device.error();
    }
    const ComputeDtype dtype = resolve_dtype(spec.dtype, *device);
    Result<std::unique_ptr<ScriptModule>> script = ScriptModule::load(
        {fields.file, fields.names, spec.module, spec.inputs, spec.outputs}, to_scalar_type(dtype), *device);
    if (!script) {
        return script.error();
    }
    ServedModel model;
    model.dtype = to_string(dtype);
    model.device = device->str();
    model.threads = static_cast<std::uint32_t>(at::get_num_threads());
    return std::make_unique<ScriptTeacher>(std::move(*script), std::move(model));
}

LoadTeacherModule local_module_loader(std::string student_device) {
    return [wanted = std::move(student_device)](const TeacherSpec& spec) -> Result<std::unique_ptr<TeacherModule>> {
        const ComputeThreadScope student_keeps_its_threads;
        TeacherSpec ours = spec;
        ours.threads = local_threads_for(spec.threads, core_count());
        const bool beside = spec.placement == TeacherPlacement::rank0 || spec.placement == TeacherPlacement::duplicated;
        return load_module_engine(ours, {}, beside ? wanted : "cpu");
    };
}

}  // namespace distilld::models

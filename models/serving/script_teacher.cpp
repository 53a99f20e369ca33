#include <torch/torch.h>

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
    ScriptTeacher(std::unique_ptr<ScriptModule> script, std::string device)
        : script_(std::move(script)), device_(std::move(device)) {
        script_->module().eval();
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

    std::string description() const override {
        std::int64_t parameters = 0;
        for (const Tensor& parameter : script_->module().parameters()) {
            parameters += parameter.numel();
        }
        return script_->names().file.string() + ": in the process, " + std::to_string(parameters) + " parameters, on " +
               device_ + ", threads " + std::to_string(at::get_num_threads());
    }

  private:
    std::unique_ptr<ScriptModule> script_;
    std::string device_;
};

}  // namespace

LoadTeacherModule local_module_loader(std::string student_device) {
    return [wanted = std::move(student_device)](const TeacherSpec& spec) -> Result<std::unique_ptr<TeacherModule>> {
        const ComputeThreadScope student_keeps_its_threads;
        at::set_num_threads(static_cast<int>(local_threads_for(spec.threads, core_count())));
        const Result<torch::Device> device = resolve_device(spec.placement == TeacherPlacement::rank0 ? wanted : "cpu");
        if (!device) {
            return device.error();
        }
        Result<std::unique_ptr<ScriptModule>> script =
            ScriptModule::load({"/teacher/module", "/teacher", spec.module, spec.inputs, spec.outputs},
                               to_scalar_type(resolve_dtype(spec.dtype, *device)), *device);
        if (!script) {
            return script.error();
        }
        return std::make_unique<ScriptTeacher>(std::move(*script), device->str());
    };
}

}  // namespace distilld::models

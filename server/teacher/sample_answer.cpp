#include <algorithm>
#include <boost/json/object.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/join.hpp"
#include "server/teacher/kserve_outputs.hpp"
#include "server/teacher/teacher_codec.hpp"

namespace distilld::teacher {
namespace {

Result<SampleTensor> read_input(const kserve::InferTensor& tensor) {
    const auto type = value_of(kserve::kSampleDatatypes, tensor.datatype);
    if (!type) {
        return invalid_input(tensor.name + " has datatype " + tensor.datatype + ": " +
                             joined(names_of(kserve::kSampleDatatypes)) + " are known");
    }
    const bool whole = std::ranges::all_of(tensor.shape, [](std::int64_t side) { return side > 0; });
    if (tensor.shape.empty() || !whole || tensor.shape.front() > std::numeric_limits<std::int32_t>::max()) {
        return invalid_input(tensor.name + " has shape " + shape_text(tensor.shape) +
                             ": [samples, …] is expected, with at least one value");
    }
    // libtorch takes each byte of a BOOL for a C++ bool.
    const auto is_bool = [](std::byte byte) { return byte <= std::byte{1}; };
    if (*type == ElementType::boolean && !std::ranges::all_of(tensor.bytes, is_bool)) {
        return invalid_input(tensor.name + " has datatype BOOL and a byte that is neither 0 nor 1");
    }
    return SampleTensor{tensor.name, {tensor.shape.begin() + 1, tensor.shape.end()}, {*type, tensor.bytes}};
}

Result<TokenBatch> read_samples(const std::vector<kserve::InferTensor>& inputs, const kserve::SampleNames& names) {
    TokenBatch samples;
    for (const kserve::InferTensor& tensor : inputs) {
        if (std::ranges::find(names.inputs, tensor.name) == names.inputs.end()) {
            return invalid_input("the model has no input '" + tensor.name + "': it takes " + joined(names.inputs));
        }
        if (find_tensor(samples.tensors, tensor.name) != nullptr) {
            return invalid_input(tensor.name + " appears twice");
        }
        auto read = read_input(tensor);
        if (!read) {
            return read.error();
        }
        samples.tensors.push_back(std::move(*read));
        const auto rows = static_cast<std::uint32_t>(tensor.shape.front());
        if (samples.rows != 0 && rows != samples.rows) {
            return invalid_input(tensor.name + " has " + std::to_string(rows) + " samples, " + inputs.front().name +
                                 " has " + std::to_string(samples.rows));
        }
        samples.rows = rows;
    }
    for (const std::string& name : names.inputs) {
        if (find_tensor(samples.tensors, name) == nullptr) {
            return invalid_input(name + " is missing");
        }
    }
    samples.columns = 1;
    samples.input_ids.assign(samples.rows, 0);
    samples.labels.assign(samples.rows, 0);
    samples.lengths.assign(samples.rows, 1);
    samples.target_tokens = samples.rows;
    return samples;
}

}  // namespace

Result<SamplePlan> parse_samples(kserve::InferRequest request, const kserve::SampleNames& names) {
    SamplePlan plan;
    plan.id = request.id;
    for (const auto& output : request.outputs) {
        if (std::ranges::find(names.outputs, output.name) == names.outputs.end()) {
            return invalid_input("the model has no output '" + output.name + "': it has " + joined(names.outputs));
        }
        if (std::ranges::find(plan.outputs, output.name, &kserve::RequestedOutput::name) != plan.outputs.end()) {
            return invalid_input("output " + output.name + " is asked for twice");
        }
        plan.outputs.push_back({output.name, request.wants_binary(output.name)});
    }
    if (plan.outputs.empty()) {
        for (const std::string& name : names.outputs) {
            plan.outputs.push_back({name, request.wants_binary(name)});
        }
    }
    auto held = std::make_shared<const std::vector<kserve::InferTensor>>(std::move(request.inputs));
    Result<TokenBatch> samples = read_samples(*held, names);
    if (!samples) {
        return samples.error();
    }
    plan.samples = std::move(*samples);
    plan.samples.owner = std::move(held);
    return plan;
}

std::uint64_t sample_answer_bytes(const SamplePlan& plan, const TeacherTargets& targets) {
    std::uint64_t bytes = targets.held_bytes;
    for (const auto& output : plan.outputs) {
        const SampleTensor* tensor = find_tensor(targets.tensors, output.name);
        if (tensor != nullptr) {
            const std::uint64_t size = tensor->values.bytes.size();
            bytes += output.binary.value_or(false) ? size : size / element_size(tensor->values.type) * kJsonNumberBytes;
        }
    }
    return bytes;
}

Result<kserve::EncodedMessage> build_samples(const SamplePlan& plan, const TeacherTargets& targets,
                                             std::string_view model_name) {
    kserve::InferResponse response;
    response.model_name = std::string(model_name);
    response.model_version = "1";
    response.id = plan.id;
    for (const auto& output : plan.outputs) {
        const SampleTensor* tensor = find_tensor(targets.tensors, output.name);
        if (tensor == nullptr) {
            return Error{ErrorKind::internal, "the module has not answered output " + output.name};
        }
        std::vector<std::int64_t> shape{targets.rows};
        shape.insert(shape.end(), tensor->sample_shape.begin(), tensor->sample_shape.end());
        response.outputs.push_back({output.name, name_of(kserve::kSampleDatatypes, tensor->values.type),
                                    std::move(shape), tensor->values.bytes, targets.owner,
                                    output.binary.value_or(false)});
    }
    return kserve::build_infer_response(response);
}

std::string build_module_metadata(const models::ServedModel& model, const kserve::SampleNames& names,
                                  std::string_view model_name) {
    const std::string datatype = model.dtype == "fp64" ? "FP64" : model.dtype == "bf16" ? "BF16" : "FP32";
    kserve::ModelMetadata metadata;
    metadata.name = std::string(model_name);
    metadata.versions = {"1"};
    metadata.platform = "distilld_torchscript";
    for (const std::string& name : names.inputs) {
        metadata.inputs.push_back({name, datatype, {-1}});
    }
    for (const std::string& name : names.outputs) {
        metadata.outputs.push_back({name, datatype, {-1}});
    }
    metadata.parameters = {{kserve::kAnyDatatype, true},
                           {"parameters", static_cast<std::int64_t>(model.parameters)},
                           {"dtype", model.dtype},
                           {"device", model.device}};
    return kserve::build_model_metadata(metadata);
}

}  // namespace distilld::teacher

#include "models/torchscript/script_module.hpp"

#include <caffe2/serialize/in_memory_adapter.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/files/mapped_file.hpp"
#include "base/files/open_file.hpp"
#include "base/join.hpp"
#include "base/sha256.hpp"
#include "models/network/device.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

torch::ScalarType scalar_type(ElementType type) {
    switch (type) {
        case ElementType::f16:
            return torch::kHalf;
        case ElementType::bf16:
            return torch::kBFloat16;
        case ElementType::f32:
            return torch::kFloat;
        case ElementType::f64:
            return torch::kDouble;
        case ElementType::i32:
            return torch::kInt;
        case ElementType::u32:
            return torch::kUInt32;
        case ElementType::i64:
            return torch::kLong;
        case ElementType::u8:
            return torch::kByte;
        case ElementType::boolean:
            return torch::kBool;
    }
    return torch::kFloat;
}

/// libtorch's messages continue with positions in its source, or repeat the module's code.
std::string first_lines(std::string text) {
    constexpr std::size_t kLimit = 400;
    if (const auto end = text.find("\nException raised from"); end != std::string::npos) {
        text.resize(end);
    }
    // An exception in forward(): a traceback, and the message last.
    if (const auto begin = text.rfind("RuntimeError: "); begin != std::string::npos) {
        text.erase(0, begin + std::string_view("RuntimeError: ").size());
    }
    text.resize(std::min({text.size(), text.find('\n'), kLimit}));
    return text;
}

/// Without profiling, the first calls of a function are compiled like all others.
void execute_as_written() {
    torch::jit::getProfilingMode() = false;
}

/// What the module computes, apart from the values of its parameters and buffers.
std::string hash_of_code(const std::shared_ptr<caffe2::serialize::ReadAdapterInterface>& file) {
    caffe2::serialize::PyTorchStreamReader reader(file);
    std::vector<std::string> records = reader.getAllRecords();
    std::ranges::sort(records);
    Sha256 sha;
    for (const std::string& record : records) {
        const bool counts = (record.starts_with("code/") && !record.ends_with(".debug_pkl")) ||
                            record.starts_with("constants") || record == "data.pkl";
        if (counts) {
            const auto [data, size] = reader.getRecord(record);
            sha.add(std::as_bytes(std::span(record)));
            sha.add(std::uint64_t{size});
            sha.add(std::span(static_cast<const std::byte*>(data.get()), size));
        }
    }
    return sha.hex();
}

/// The first operator in a block that takes the name of a file (torch.from_file, torch.save); empty: there is none.
std::string operator_on_files(const torch::jit::Block& block) {
    for (const torch::jit::Node* node : block.nodes()) {
        if (const auto* schema = node->maybeSchema()) {
            const auto names_file = [](const c10::Argument& argument) {
                return argument.name().find("file") != std::string::npos ||
                       argument.name().find("path") != std::string::npos;
            };
            if (std::ranges::any_of(schema->arguments(), names_file)) {
                return node->kind().toQualString();
            }
        }
        for (const torch::jit::Block* inner : node->blocks()) {
            if (std::string found = operator_on_files(*inner); !found.empty()) {
                return found;
            }
        }
    }
    return {};
}

/// The same for all functions of a module's code.
std::string operator_on_files(const torch::jit::Module& module) {
    for (torch::jit::Function* function : module._ivalue()->compilation_unit()->get_functions()) {
        if (auto* graph_function = torch::jit::tryToGraphFunction(*function)) {
            if (std::string found = operator_on_files(*graph_function->graph()->block()); !found.empty()) {
                return found;
            }
        }
    }
    return {};
}

std::string is_not(const torch::jit::IValue& value) {
    return "a " + value.tagKind();
}

}  // namespace

Tensor to_tensor(const SampleTensor& tensor, std::uint32_t rows) {
    std::vector<std::int64_t> shape{rows};
    shape.insert(shape.end(), tensor.sample_shape.begin(), tensor.sample_shape.end());
    Tensor made = torch::empty(shape, scalar_type(tensor.values.type));
    const std::span<const std::byte> bytes = tensor.values.bytes;
    if (bytes.size() != made.nbytes()) {
        throw ErrorException(Error{ErrorKind::internal, "tensor " + tensor.name + " has " +
                                                            std::to_string(bytes.size()) + " bytes, not " +
                                                            std::to_string(made.nbytes())});
    }
    if (!bytes.empty()) {
        std::memcpy(made.mutable_data_ptr(), bytes.data(), bytes.size());
    }
    return made;
}

ScriptModule::ScriptModule(ModuleNames names, torch::jit::Module module, std::string code_hash, torch::ScalarType type,
                           torch::Device device)
    : names_(std::move(names)),
      module_(std::move(module)),
      code_hash_(std::move(code_hash)),
      type_(type),
      device_(device) {
    const torch::NoGradGuard no_grad;
    std::vector<Tensor> tensors;
    const auto note = [&](const auto& named) {
        saved_types_.emplace(named.name, named.value.scalar_type());
        tensors.push_back(named.value);
        if (named.value.is_floating_point() && named.value.scalar_type() != type_) {
            originals_.emplace(named.name, named.value.detach().alias());
        }
    };
    for (const auto& parameter : module_.named_parameters()) {
        note(parameter);
    }
    for (const auto& buffer : module_.named_buffers()) {
        note(buffer);
    }
    // After all types are known: a tensor may have several names.
    for (Tensor& tensor : tensors) {
        if (tensor.is_floating_point() && tensor.scalar_type() != type_) {
            tensor.set_data(tensor.to(type_));
        }
    }
}

Result<std::unique_ptr<ScriptModule>> ScriptModule::load(ModuleNames names, torch::ScalarType type,
                                                         const torch::Device& device) {
    execute_as_written();
    set_up_vector_math();
    const Result<MappedFile> file = MappedFile::open(names.file);
    if (!file) {
        return invalid_at(names.field, file.error());
    }
    const std::span<const std::byte> bytes = file->bytes();
    const auto refuse = [&names](const std::string& why) {
        return invalid_input(names.field + ": " + names.file.string() + ": " + why);
    };
    try {
        const auto reader =
            std::make_shared<caffe2::serialize::MemoryReadAdapter>(bytes.data(), static_cast<off_t>(bytes.size()));
        torch::jit::Module module = torch::jit::load(reader, device, /*load_debug_files=*/false);
        if (const std::string found = operator_on_files(module); !found.empty()) {
            return refuse("its code calls " + found + ", which opens files: a network must not");
        }
        const std::optional<torch::jit::Method> forward = module.find_method("forward");
        if (!forward) {
            return refuse("has no forward()");
        }
        const auto& arguments = forward->function().getSchema().arguments();  // the first is self
        const auto needed = std::ranges::count_if(arguments, [](const auto& one) { return !one.default_value(); }) - 1;
        const auto given = static_cast<std::ptrdiff_t>(names.inputs.size());
        if (given < needed || given >= std::ssize(arguments)) {
            std::vector<std::string> taken;
            std::transform(arguments.begin() + 1, arguments.end(), std::back_inserter(taken),
                           [](const auto& one) { return one.name(); });
            return invalid_input(names.section + "inputs: names " + std::to_string(given) + " tensors, forward() of " +
                                 names.file.string() + " takes " + std::to_string(taken.size()) + " (" + joined(taken) +
                                 ")");
        }
        return std::unique_ptr<ScriptModule>(
            new ScriptModule(std::move(names), std::move(module), hash_of_code(reader), type, device));
    } catch (const std::exception& error) {
        return refuse("is not a TorchScript file (torch.jit.save): " + first_lines(error.what()));
    }
}

std::vector<Tensor> ScriptModule::inputs_of(const TokenBatch& batch) const {
    std::vector<Tensor> inputs;
    for (const std::string& name : names_.inputs) {
        const SampleTensor* tensor = find_tensor(batch.tensors, name);
        if (tensor == nullptr) {
            throw ErrorException(
                invalid_input(names_.section + "inputs: the data has no tensor \"" + name + "\" (it has " +
                              joined(batch.tensors, ", ", [](const SampleTensor& one) { return one.name; }) + ")"));
        }
        Tensor input = to_tensor(*tensor, batch.rows).to(device_);
        inputs.push_back(input.is_floating_point() ? input.to(type_) : input);
    }
    return inputs;
}

std::vector<Tensor> ScriptModule::run(const std::vector<Tensor>& inputs, std::uint32_t rows) const {
    torch::jit::IValue returned;
    try {
        returned = module_.forward({inputs.begin(), inputs.end()});
    } catch (const std::exception& error) {
        throw failure("forward() failed", error);
    }
    std::vector<Tensor> outputs = tensors_of(returned);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        const Tensor& output = outputs[i];
        if (!output.is_floating_point() || output.dim() == 0 || output.size(0) != std::int64_t{rows}) {
            throw ErrorException(invalid_input(names_.section + "outputs: \"" + names_.outputs[i] + "\" is " +
                                               c10::toString(output.scalar_type()) + " " + shape_text(output.sizes()) +
                                               " for " + std::to_string(rows) +
                                               " samples: it must be floating, and its first dimension that of the "
                                               "samples"));
        }
    }
    return outputs;
}

std::vector<Tensor> ScriptModule::tensors_of(const torch::jit::IValue& returned) const {
    std::vector<Tensor> outputs;
    const auto refuse = [this](const std::string& what) {
        throw ErrorException(invalid_input(names_.section + "outputs: forward() of " + names_.file.string() +
                                           " returns " + what + ", and the field names " +
                                           std::to_string(names_.outputs.size()) + ": " + joined(names_.outputs)));
    };
    if (returned.isTensor()) {
        outputs.push_back(returned.toTensor());
    } else if (returned.isTuple()) {
        for (const torch::jit::IValue& element : returned.toTupleRef().elements()) {
            if (!element.isTensor()) {
                refuse("a tuple with " + is_not(element));
            }
            outputs.push_back(element.toTensor());
        }
    } else {
        refuse(is_not(returned) + ", not a tensor or a tuple of tensors");
    }
    if (outputs.size() != names_.outputs.size()) {
        refuse(std::to_string(outputs.size()) + (outputs.size() == 1 ? " tensor" : " tensors"));
    }
    return outputs;
}

ErrorException ScriptModule::failure(const std::string& what, const std::exception& cause) const {
    return ErrorException(
        invalid_input(names_.field + ": " + names_.file.string() + ": " + what + ": " + first_lines(cause.what())));
}

}  // namespace distilld::models

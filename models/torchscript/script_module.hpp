#pragma once

#include <torch/script.h>

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"

namespace distilld::models {

/// What a spec says of a module.
struct ModuleNames {
    std::string field;                 ///< of the file, for messages: "/student/model"
    std::string section;               ///< "/student/": before the names of the fields `inputs` and `outputs`
    std::filesystem::path file;        ///< written by torch.jit.save()
    std::vector<std::string> inputs;   ///< tensors of the data that forward() takes, in this order
    std::vector<std::string> outputs;  ///< names of the tensors that forward() returns
};

/// The values as a tensor [rows, sample_shape…] in host memory. Copies the bytes.
[[nodiscard]] torch::Tensor to_tensor(const SampleTensor& tensor, std::uint32_t rows);

/// A TorchScript module (torch.jit.script or trace) with named inputs and outputs, executed without the profiling and
/// the fusion of libtorch's JIT, so that the first call gives the bits of every other. Its code can compute, but it can
/// open no file and no connection. Errors name the field of the spec. run() may be called by any number of threads,
/// while no other thread changes the module.
class ScriptModule {
  public:
    /// Floating parameters, buffers and inputs become `type`.
    static Result<std::unique_ptr<ScriptModule>> load(ModuleNames names, torch::ScalarType type,
                                                      const torch::Device& device);

    [[nodiscard]] torch::jit::Module& module() noexcept { return module_; }
    [[nodiscard]] const ModuleNames& names() const noexcept { return names_; }
    /// SHA-256 (hex) over the archive's code, constants and attributes, but not the values of parameters and buffers.
    [[nodiscard]] const std::string& code_hash() const noexcept { return code_hash_; }
    /// Dtype of each parameter and floating buffer in the file, by name.
    [[nodiscard]] const std::map<std::string, torch::ScalarType>& saved_types() const noexcept { return saved_types_; }

    /// The file's values of the parameters and buffers that became another dtype, by name; at the first call.
    [[nodiscard]] std::map<std::string, torch::Tensor> take_originals() { return std::exchange(originals_, {}); }

    /// The arguments of forward() on the module's device, floating ones in its dtype. Throws ErrorException if the data
    /// lacks one. Any thread.
    [[nodiscard]] std::vector<torch::Tensor> inputs_of(const TokenBatch& batch) const;

    /// The outputs, in the order of their names, each [rows, …] and floating. Throws ErrorException if forward() fails
    /// or returns something else.
    [[nodiscard]] std::vector<torch::Tensor> run(const std::vector<torch::Tensor>& inputs, std::uint32_t rows) const;

    /// An exception that it cannot be run: the first lines of what libtorch says.
    [[nodiscard]] ErrorException failure(const std::string& what, const std::exception& cause) const;

  private:
    ScriptModule(ModuleNames names, torch::jit::Module module, std::string code_hash, torch::ScalarType type,
                 torch::Device device);

    [[nodiscard]] std::vector<torch::Tensor> tensors_of(const torch::jit::IValue& returned) const;

    ModuleNames names_;
    mutable torch::jit::Module module_;
    std::string code_hash_;
    torch::ScalarType type_;
    torch::Device device_;
    std::map<std::string, torch::ScalarType> saved_types_;
    std::map<std::string, torch::Tensor> originals_;
};

}  // namespace distilld::models

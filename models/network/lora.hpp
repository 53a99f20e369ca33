#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/network/dropout.hpp"
#include "models/network/linear.hpp"
#include "models/network/parameter.hpp"
#include "models/weights/adapter_export.hpp"
#include "pipeline/core/spec_sections.hpp"

/// Low-rank adapters (Hu et al. 2021, arXiv 2106.09685) as in PEFT 0.10 and later.
namespace distilld::models {

class CausalLm;

/// The adapter of one linear module: alpha / r · B·A·dropout(x) is added to its output. A [r, inputs] and B [outputs,
/// r] are fp32 masters; arithmetic is in the dtype of x.
class LoraAdapter {
  public:
    /// Declares both in `group`, under PEFT's names ("base_model.model.…q_proj.lora_A.weight"). `dropout_seed` outlives
    /// this.
    LoraAdapter(ParameterGroup& group, const Linear& module, const LoraSpec& spec, const std::uint64_t& dropout_seed);

    /// `output` [.., outputs] of the module for `input` [.., inputs] -> output plus adapter.
    [[nodiscard]] torch::Tensor add_to(const torch::Tensor& output, const torch::Tensor& input,
                                       ProductKind kind = ProductKind::library) const;

    [[nodiscard]] Parameter& a() const noexcept { return *a_; }
    [[nodiscard]] Parameter& b() const noexcept { return *b_; }

  private:
    Parameter* a_;
    Parameter* b_;
    double scaling_;
    Dropout dropout_;
};

/// All adapters of a network.
struct AdapterSet {
    LoraSpec spec;  ///< effective target_modules, sorted
    std::uint64_t seed = 0;
    AdapterExport files;  ///< without the parameters
};

/// Declares adapters, without memory, for the modules of spec.target_modules, or for all linear modules if it is empty.
/// The network's own parameters are frozen. The error names `field` and lists the modules.
Result<void> declare_adapters(CausalLm& network, const LoraSpec& spec, std::uint64_t seed,
                              const std::string& field = "/student/lora/target_modules");

/// Allocates the adapters and sets PEFT's initial values: A uniform in ±1/√inputs (kaiming_uniform with a = √5), B 0.
/// Each is drawn from the seed and its name, independently of the others.
void initialize_adapters(CausalLm& network);

/// Whether adapter_model.safetensors of `folder` is what read_adapters() takes, values apart; adapters may be declared
/// only.
Result<void> check_adapter_file(const CausalLm& network, const std::filesystem::path& folder);

/// Reads adapter_model.safetensors of `folder` into allocated adapters. The file must hold every adapter with its
/// shape, in F32, F16 or BF16, and nothing else. Errors name the file and the tensor.
Result<void> read_adapters(CausalLm& network, const std::filesystem::path& folder);

}  // namespace distilld::models

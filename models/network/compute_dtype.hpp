#pragma once

#include <torch/torch.h>

#include <string_view>

#include "pipeline/core/job_spec.hpp"

namespace distilld::models {

/// What the arithmetic of forward runs in. fp64 is for gradient checks; no job asks for it.
enum class ComputeDtype { fp32, bf16, fp64 };

[[nodiscard]] const char* to_string(ComputeDtype dtype) noexcept;
[[nodiscard]] torch::ScalarType to_scalar_type(ComputeDtype dtype) noexcept;
/// Dtype of masters, gradients and optimizer state: fp64 with fp64, else fp32.
[[nodiscard]] torch::ScalarType master_type(ComputeDtype dtype) noexcept;

/// auto_select: bf16 on a CUDA device or a CPU that multiplies it, else fp32. `cpuinfo` is the text of /proc/cpuinfo;
/// what counts are the flags of its first processor: amx_tile and amx_bf16, or avx512_bf16.
ComputeDtype resolve_dtype(Dtype wanted, const torch::Device& device, std::string_view cpuinfo);

/// The same with this machine's /proc/cpuinfo.
ComputeDtype resolve_dtype(Dtype wanted, const torch::Device& device);

}  // namespace distilld::models

#pragma once

#include <torch/types.h>

#include <string_view>

#include "base/enum_names.hpp"
#include "pipeline/core/spec_sections.hpp"

namespace distilld::models {

/// The dtype of forward. fp64 is only for gradient checks.
enum class ComputeDtype { fp32, bf16, fp64 };
BOOST_DESCRIBE_ENUM(ComputeDtype, fp32, bf16, fp64)

[[nodiscard]] torch::ScalarType to_scalar_type(ComputeDtype dtype) noexcept;
/// Dtype of masters, gradients and optimizer state: fp64 with fp64, else fp32.
[[nodiscard]] torch::ScalarType master_type(ComputeDtype dtype) noexcept;

/// auto_select: bf16 on a CUDA device or a CPU with bf16 multiplication, else fp32. `cpuinfo` is the text of
/// /proc/cpuinfo; the flags of its first processor decide: amx_tile and amx_bf16, or avx512_bf16.
ComputeDtype resolve_dtype(Dtype wanted, const torch::Device& device, std::string_view cpuinfo);

/// The same with this machine's /proc/cpuinfo.
ComputeDtype resolve_dtype(Dtype wanted, const torch::Device& device);

}  // namespace distilld::models

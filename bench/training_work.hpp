#pragma once

#include <cstdint>
#include <string>

#include "models/families/model_family.hpp"
#include "pipeline/core/spec_sections.hpp"

/// What training costs and what the machine gives, for benchmarks. Torch-free header.
namespace distilld::bench {

/// Floating-point operations that training takes for one token in a row of `sequence_length`: 6 for each number of a
/// matrix that is multiplied with (2 forwards, 4 backwards; the head's too, the lookup of an embedding not), and for
/// attention 6·T·heads·head_dim a layer, which is that of the causal half. What is element by element does not count
/// (Kaplan et al. 2020, arXiv 2001.08361 §2.1).
[[nodiscard]] double training_flops_per_token(const models::ModelConfig& config, std::uint32_t sequence_length);

/// "cpu" or "cuda:N": what student.device `device` comes to on this machine. Throws UsageError about --device.
[[nodiscard]] std::string resolved_device(const std::string& device);

/// Floating-point operations a second of a square matrix product in the dtype that `dtype` comes to on the device, of
/// 1,024 on a CPU and 8,192 on a GPU: the best of what fits into about `seconds`. On the calling thread, with
/// libtorch's number of threads. `device` is a resolved_device().
[[nodiscard]] double measure_gemm_rate(Dtype dtype, const std::string& device, double seconds);

/// "fp32" or "bf16": what `dtype` comes to on the device.
[[nodiscard]] const char* resolved_dtype_name(Dtype dtype, const std::string& device);

}  // namespace distilld::bench

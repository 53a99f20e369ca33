#pragma once

#include <torch/torch.h>

#include <string_view>

#include "base/error.hpp"

namespace distilld::models {

/// The CUDA devices that libtorch finds.
struct CudaDevices {
    bool built = false;  ///< libtorch was built with CUDA
    int count = 0;       ///< devices it can use
};
[[nodiscard]] CudaDevices cuda_devices();

/// A spec's student.device: "auto" (the first CUDA device, else the CPU), "cpu", "cuda" (the first) or "cuda:N". Errors
/// name /student/device: no CUDA in this build, no such device, an invalid text.
Result<torch::Device> resolve_device(std::string_view text, const CudaDevices& cuda);
/// The same with cuda_devices().
Result<torch::Device> resolve_device(std::string_view text);

/// From now on, libtorch uses deterministic algorithms on this process's GPUs, for example in attention's backward
/// pass. On a CPU, that changes only the algorithms of scatter and index operations, so it is not called for a student
/// there. An operation without a deterministic algorithm is an error of libtorch.
void make_repeatable();

}  // namespace distilld::models

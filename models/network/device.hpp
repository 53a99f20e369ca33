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
/// name /student/device: no CUDA in this build, no such device, not understood.
Result<torch::Device> resolve_device(std::string_view text, const CudaDevices& cuda);
/// The same with cuda_devices().
Result<torch::Device> resolve_device(std::string_view text);

/// From now on libtorch computes on this process's GPUs what gives the same bits each time, where it has the choice:
/// attention's backward pass, for one, which else adds up in any order. Changes nothing on a CPU but which algorithms
/// scatter and index operations take; not called for a student there. What cannot be repeated is an error of
/// libtorch's.
void make_repeatable();

}  // namespace distilld::models

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
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

/// See models/network/effective_dtype.hpp.
[[nodiscard]] std::string device_of_rank(const std::string& text, std::uint32_t local_rank, const CudaDevices& cuda);

/// MKL's vector functions, which libtorch uses for cos, exp and others, set themselves up at the first call of a
/// process. If several threads make that call at once, some of its results may have the precision of another mode:
/// errors of 1e-4 in about 1 of 200 processes on a busy machine. This makes the first call on one thread. Call it
/// before computing; once suffices.
void set_up_vector_math();

/// From now on, libtorch uses deterministic algorithms on this process's GPUs, for example in attention's backward
/// pass. On a CPU, that changes only the algorithms of scatter and index operations, so it is not called for a student
/// there. An operation without a deterministic algorithm is an error of libtorch.
void make_repeatable();

}  // namespace distilld::models

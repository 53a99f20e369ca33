#include "models/network/device.hpp"

#include <torch/cuda.h>
#include <torch/version.h>

#include <string>

#include "base/ascii.hpp"
#include "models/network/compute_dtype.hpp"
#include "models/network/effective_dtype.hpp"

namespace distilld::models {
namespace {

constexpr std::string_view kCuda = "cuda";

torch::Device automatic(const CudaDevices& cuda) {
    return cuda.count > 0 ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
}

Error refused(std::string_view text, const std::string& why) {
    return invalid_input("/student/device: is \"" + std::string(text) + "\"" + why);
}

/// The N of "cuda:N", 0 for "cuda"; -1 for any other text.
int cuda_index(std::string_view text) {
    if (!text.starts_with(kCuda)) {
        return -1;
    }
    text.remove_prefix(kCuda.size());
    if (text.empty()) {
        return 0;
    }
    return text.starts_with(':') ? number_from<int>(text.substr(1)).value_or(-1) : -1;
}

}  // namespace

CudaDevices cuda_devices() {
    CudaDevices found;
    found.built = at::globalContext().hasCUDART();
    found.count = torch::cuda::is_available() ? static_cast<int>(torch::cuda::device_count()) : 0;
    return found;
}

Result<torch::Device> resolve_device(std::string_view text, const CudaDevices& cuda) {
    if (text == "auto") {
        return automatic(cuda);
    }
    if (text == "cpu") {
        return torch::Device(torch::kCPU);
    }
    const int index = cuda_index(text);
    if (index < 0) {
        return refused(text, "; auto, cpu, cuda or cuda:N is expected");
    }
    if (!cuda.built) {
        return refused(text, ", but this build has no CUDA");
    }
    if (index >= cuda.count) {
        return refused(text, ", but libtorch finds " + std::to_string(cuda.count) + " CUDA devices");
    }
    return torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
}

Result<torch::Device> resolve_device(std::string_view text) {
    return resolve_device(text, cuda_devices());
}

std::string device_of_rank(const std::string& text, std::uint32_t local_rank, const CudaDevices& cuda) {
    const bool open = text == "auto" || text == kCuda;
    return open && cuda.count > 0 ? "cuda:" + std::to_string(local_rank % static_cast<std::uint32_t>(cuda.count))
                                  : text;
}

std::string device_of_rank(const std::string& text, std::uint32_t local_rank) {
    return device_of_rank(text, local_rank, cuda_devices());
}

Result<std::string> device_name(std::string_view text) {
    const Result<torch::Device> device = resolve_device(text);
    return device ? Result<std::string>(device->str()) : Result<std::string>(device.error());
}

void set_up_vector_math() {
    [[maybe_unused]] static const bool done = torch::zeros({1}).cos().defined();
}

void make_repeatable() {
    at::globalContext().setDeterministicAlgorithms(/*b=*/true, /*warn_only=*/false);
    // Otherwise libtorch first fills every tensor without values with NaN.
    at::globalContext().setDeterministicFillUninitializedMemory(false);
}

Result<Dtype> effective_dtype(Dtype wanted, std::string_view device) {
    const Result<torch::Device> where = resolve_device(device);
    if (!where) {
        return where.error();
    }
    if (wanted != Dtype::auto_select) {
        return wanted;
    }
    return resolve_dtype(wanted, *where) == ComputeDtype::bf16 ? Dtype::bf16 : Dtype::fp32;
}

std::string libtorch_version() {
    return TORCH_VERSION;
}

}  // namespace distilld::models

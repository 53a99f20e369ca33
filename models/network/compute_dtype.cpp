#include "models/network/compute_dtype.hpp"

#include "base/cores.hpp"

namespace distilld::models {

torch::ScalarType to_scalar_type(ComputeDtype dtype) noexcept {
    switch (dtype) {
        case ComputeDtype::fp32:
            return torch::kFloat;
        case ComputeDtype::bf16:
            return torch::kBFloat16;
        case ComputeDtype::fp64:
            return torch::kDouble;
    }
    return torch::kFloat;
}

torch::ScalarType master_type(ComputeDtype dtype) noexcept {
    return dtype == ComputeDtype::fp64 ? torch::kDouble : torch::kFloat;
}

ComputeDtype resolve_dtype(Dtype wanted, const torch::Device& device, std::string_view cpuinfo) {
    switch (wanted) {
        case Dtype::fp32:
            return ComputeDtype::fp32;
        case Dtype::bf16:
            return ComputeDtype::bf16;
        case Dtype::fp64:
            return ComputeDtype::fp64;
        case Dtype::auto_select:
            break;
    }
    return device.is_cuda() || (device.is_cpu() && multiplies_bf16(cpuinfo)) ? ComputeDtype::bf16 : ComputeDtype::fp32;
}

ComputeDtype resolve_dtype(Dtype wanted, const torch::Device& device) {
    return resolve_dtype(wanted, device, cpuinfo());
}

}  // namespace distilld::models

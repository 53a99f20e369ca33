#include "models/network/in_force.hpp"

#include <torch/version.h>

#include "models/network/compute_dtype.hpp"
#include "models/network/device.hpp"

namespace distilld::models {

Result<Dtype> dtype_in_force(Dtype wanted, std::string_view device) {
    const Result<torch::Device> where = resolve_device(device);
    if (!where) {
        return where.error();
    }
    return resolve_dtype(wanted, *where) == ComputeDtype::bf16 ? Dtype::bf16 : Dtype::fp32;
}

std::string libtorch_version() {
    return TORCH_VERSION;
}

}  // namespace distilld::models

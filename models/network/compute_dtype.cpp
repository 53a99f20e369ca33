#include "models/network/compute_dtype.hpp"

#include <fstream>
#include <iterator>
#include <string>

namespace distilld::models {
namespace {

/// Products of bf16 that the processor has instructions for: tiles (AMX), or AVX512-BF16's dot products.
bool multiplies_bf16(std::string_view cpuinfo) {
    while (!cpuinfo.empty()) {
        const std::string_view line = cpuinfo.substr(0, cpuinfo.find('\n'));
        if (line.starts_with("flags")) {
            const std::string words = std::string(line) + ' ';
            const auto has = [&words](const char* flag) { return words.find(flag) != std::string::npos; };
            return (has(" amx_bf16 ") && has(" amx_tile ")) || has(" avx512_bf16 ");
        }
        cpuinfo.remove_prefix(line.size() == cpuinfo.size() ? line.size() : line.size() + 1);
    }
    return false;
}

}  // namespace

const char* to_string(ComputeDtype dtype) noexcept {
    switch (dtype) {
        case ComputeDtype::fp32:
            return "fp32";
        case ComputeDtype::bf16:
            return "bf16";
        case ComputeDtype::fp64:
            return "fp64";
    }
    return "fp32";
}

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
        case Dtype::auto_select:
            break;
    }
    return device.is_cuda() || (device.is_cpu() && multiplies_bf16(cpuinfo)) ? ComputeDtype::bf16 : ComputeDtype::fp32;
}

ComputeDtype resolve_dtype(Dtype wanted, const torch::Device& device) {
    std::ifstream file("/proc/cpuinfo");
    const std::string cpuinfo{std::istreambuf_iterator<char>(file), {}};
    return resolve_dtype(wanted, device, cpuinfo);
}

}  // namespace distilld::models

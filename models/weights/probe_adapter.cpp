#include "models/weights/probe_adapter.hpp"

#include <utility>

#include "base/files/files.hpp"
#include "models/weights/safetensors.hpp"

namespace distilld::models {

namespace {

constexpr const char* kWeights = "adapter_model.safetensors";
constexpr const char* kConfig = "adapter_config.json";
/// Large against rounding, small enough that the model's numbers stay finite.
constexpr double kLargest = 0.1;

/// In ±[kLargest / 2, kLargest], with alternating signs.
torch::Tensor no_zeros_like(const torch::Tensor& weights) {
    const torch::Tensor at = torch::arange(weights.numel(), torch::kDouble);
    const torch::Tensor sign = 1 - 2 * torch::remainder(at, 2);
    return (sign * kLargest * (0.75 + 0.25 * torch::cos(at))).reshape(weights.sizes()).to(weights.scalar_type());
}

}  // namespace

Result<void> write_probe_adapter(const std::filesystem::path& from, const std::filesystem::path& to) {
    const Result<SafetensorsFile> file = SafetensorsFile::open(from / kWeights);
    if (!file) {
        return file.error();
    }
    NamedTensors tensors;
    for (const std::string& name : file->names()) {
        Result<torch::Tensor> tensor = file->tensor(name);
        if (!tensor) {
            return tensor.error();
        }
        const bool is_b =
            name.find(".lora_B.") != std::string::npos || name.find(".lora_embedding_B") != std::string::npos;
        tensors.push_back({name, is_b ? no_zeros_like(*tensor) : std::move(*tensor)});
    }
    if (Result<void> written = write_safetensors(to / kWeights, tensors, file->metadata()); !written) {
        return written;
    }
    return copy_file_atomically(from / kConfig, to / kConfig);
}

}  // namespace distilld::models

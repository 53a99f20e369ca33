#include "models/weights/probe_adapter.hpp"

#include <utility>

#include "base/files/files.hpp"
#include "models/weights/safetensors.hpp"

namespace distilld::models {

namespace {

constexpr const char* kWeights = "adapter_model.safetensors";
constexpr const char* kConfig = "adapter_config.json";
constexpr const char* kModelWeights = "model.safetensors";
/// Large against rounding, small enough that the model's numbers stay finite.
constexpr double kLargest = 0.1;

/// In ±[kLargest / 2, kLargest], with alternating signs.
torch::Tensor no_zeros_like(const torch::Tensor& weights) {
    const torch::Tensor at = torch::arange(weights.numel(), torch::kDouble);
    const torch::Tensor sign = 1 - 2 * torch::remainder(at, 2);
    return (sign * kLargest * (0.75 + 0.25 * torch::cos(at))).reshape(weights.sizes()).to(weights.scalar_type());
}

/// Writes the tensors of a file as `change` returns them.
template <class Change>
Result<void> rewrite(const std::filesystem::path& from, const std::filesystem::path& to, Change change) {
    const Result<SafetensorsFile> file = SafetensorsFile::open(from);
    if (!file) {
        return file.error();
    }
    NamedTensors tensors;
    for (const std::string& name : file->names()) {
        const Result<torch::Tensor> tensor = file->tensor(name);
        if (!tensor) {
            return tensor.error();
        }
        tensors.push_back({name, change(name, *tensor)});
    }
    return write_safetensors(to, tensors, file->metadata());
}

}  // namespace

Result<void> write_probe_adapter(const std::filesystem::path& from, const std::filesystem::path& to) {
    const auto other_b = [](const std::string& name, const torch::Tensor& tensor) {
        const bool is_b =
            name.find(".lora_B.") != std::string::npos || name.find(".lora_embedding_B") != std::string::npos;
        return is_b ? no_zeros_like(tensor) : tensor;
    };
    const Result<void> written = rewrite(from / kWeights, to / kWeights, other_b);
    return written ? copy_file_atomically(from / kConfig, to / kConfig) : written;
}

Result<void> write_probe_model(const std::filesystem::path& from, const std::filesystem::path& to) {
    const auto reversed = [](const std::string&, const torch::Tensor& tensor) {
        return tensor.dim() < 2 ? tensor : tensor.flip(-1).contiguous();
    };
    const Result<std::vector<std::string>> names = names_in(from);
    Result<void> done = names ? Result<void>() : names.error();
    for (std::size_t i = 0; done && i < names->size(); ++i) {
        const std::string& name = (*names)[i];
        done = name == kModelWeights ? rewrite(from / name, to / name, reversed)
                                     : copy_file_atomically(from / name, to / name);
    }
    return done;
}

}  // namespace distilld::models

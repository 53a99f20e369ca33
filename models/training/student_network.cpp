#include "models/training/student_network.hpp"

#include <filesystem>
#include <string>
#include <utility>

#include "models/families/adapter_config.hpp"
#include "models/families/student_config.hpp"
#include "models/network/decoder.hpp"
#include "models/network/ternary_modules.hpp"
#include "models/training/adapted_network.hpp"
#include "models/training/memory_check.hpp"

namespace distilld::models {
namespace {

namespace fs = std::filesystem;

/// The network is declared, which takes no memory, and its parameters are counted.
Result<void> check_memory(const ModelConfig& config, ComputeDtype dtype, const StudentSpec& spec,
                          const TrainingSpec& training, std::uint64_t max_bytes) {
    return check_training_memory(*make_decoder(config, dtype, {torch::kCPU}), training,
                                 spec.config_json ? "/student/config" : "/student/model", max_bytes);
}

Result<std::unique_ptr<CausalLm>> random_network(const StudentSpec& spec, const TrainingSpec& training,
                                                 const torch::Device& device, std::span<const ModelFamily> families,
                                                 std::uint64_t max_bytes) {
    if (spec.model.empty() && !spec.config_json) {
        return invalid_input("/student: config or model is required with init random");
    }
    Result<ModelConfig> config = read_student_config(spec, families);
    if (!config) {
        return config.error();
    }
    const ComputeDtype dtype = resolve_dtype(spec.dtype, device);
    if (const Result<void> fits = check_memory(*config, dtype, spec, training, max_bytes); !fits) {
        return fits.error();
    }
    return make_causal_lm(std::move(*config), dtype, device, training.seed);
}

Result<std::unique_ptr<CausalLm>> pretrained_network(const StudentSpec& spec, const TrainingSpec& training,
                                                     const torch::Device& device, std::span<const ModelFamily> families,
                                                     std::uint64_t max_bytes) {
    if (spec.model.empty()) {
        return invalid_input("/student/model: is required with init pretrained");
    }
    std::error_code code;
    if (!fs::is_directory(spec.model, code)) {
        return invalid_input("/student/model: " + spec.model + " is not a folder");
    }
    const ComputeDtype dtype = resolve_dtype(spec.dtype, device);
    Result<ModelConfig> config = read_student_config(spec, families);
    if (!config) {
        return config.error();
    }
    if (const Result<void> fits = check_memory(*config, dtype, spec, training, max_bytes); !fits) {
        return fits.error();
    }
    if (!spec.config_json) {
        return open_causal_lm(spec.model, dtype, device, families);
    }
    Result<std::string> generation = read_generation_config(spec.model);
    if (!generation) {
        return generation.error();
    }
    config->source_generation_json = std::move(*generation);
    return load_causal_lm(std::move(*config), spec.model, dtype, device);
}

}  // namespace

Result<std::unique_ptr<CausalLm>> make_student_network(const StudentSpec& spec, const TrainingSpec& training,
                                                       const torch::Device& device,
                                                       std::span<const ModelFamily> families, std::uint64_t max_bytes) {
    if (spec.lora) {
        return make_adapted_network(spec, training, device, families, max_bytes);
    }
    Result<std::unique_ptr<CausalLm>> network = spec.init == StudentInit::random
                                                    ? random_network(spec, training, device, families, max_bytes)
                                                    : pretrained_network(spec, training, device, families, max_bytes);
    if (network) {
        (*network)->dropout_clock().seed = training.seed;
    }
    if (network && spec.quantization == Quantization::ternary) {
        if (const Result<void> made = make_ternary(**network, spec.quantize_modules); !made) {
            return made.error();
        }
    }
    return network;
}

}  // namespace distilld::models

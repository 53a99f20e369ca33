#include "models/training/student_network.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/files/open_file.hpp"
#include "models/families/adapter_config.hpp"
#include "models/families/student_config.hpp"
#include "models/network/decoder.hpp"
#include "models/network/lora.hpp"
#include "models/network/ternary_modules.hpp"
#include "models/training/memory_check.hpp"
#include "models/weights/weight_folder.hpp"

namespace distilld::models {
namespace {

namespace fs = std::filesystem;

/// The spec, completed from the folder. It must not contradict how the folder's adapters were trained.
Result<LoraSpec> agreed_spec(const LoraSpec& spec, const AdapterConfig& folder, const fs::path& path) {
    const auto refuse = [&](const char* field, const std::string& is, const std::string& has) {
        return invalid_input(std::string("/student/lora/") + field + ": is " + is + ", but the adapter in " +
                             path.string() + " has " + has);
    };
    if (static_cast<std::int64_t>(spec.r) != folder.r) {
        return refuse("r", std::to_string(spec.r), std::to_string(folder.r));
    }
    if (spec.alpha != folder.alpha) {
        return refuse("alpha", number_text(spec.alpha), number_text(folder.alpha));
    }
    LoraSpec agreed = spec;
    if (agreed.target_modules.empty()) {
        agreed.target_modules = folder.target_modules;
    } else if (std::set(spec.target_modules.begin(), spec.target_modules.end()) !=
               std::set(folder.target_modules.begin(), folder.target_modules.end())) {
        return refuse("target_modules", "another list", "others: leave it out to take them");
    }
    return agreed;
}

/// Fills in the export's description of the adapters.
Result<void> describe_adapters(CausalLm& network, const fs::path& base) {
    AdapterSet& adapters = *network.adapters();
    const Result<WeightFolder> weights = WeightFolder::open(base);
    if (!weights) {
        return weights.error();
    }
    Result<std::string> hash = weights->hash();
    if (!hash) {
        return hash.error();
    }
    const LoraSpec& spec = adapters.spec;
    adapters.files.base_folder = base;
    adapters.files.base_names = names_in_files(*network.config().family);
    adapters.files.base_sha256 = std::move(*hash);
    const bool transposed = std::ranges::any_of(adapters.files.modules, &AdapterExport::Module::transposed);
    adapters.files.config_json =
        to_adapter_config_json({base.string(), spec.r, spec.alpha, spec.dropout, spec.target_modules, transposed});
    return {};
}

/// The network of a spec with student.lora: the base's weights once, frozen, in the compute dtype, plus adapters: new
/// ones of training.seed or, if student.model is a PEFT folder, the folder's (its adapter_config.json names the base,
/// and the spec must agree with its r, alpha and target_modules). A network that needs more than `max_bytes` (0 = no
/// bound) is refused before memory is allocated. Errors name the spec's field or the file.
Result<std::unique_ptr<CausalLm>> make_adapted_network(const StudentSpec& spec, const TrainingSpec& training,
                                                       const torch::Device& device,
                                                       std::span<const ModelFamily> families, std::uint64_t max_bytes) {
    const fs::path folder(spec.model);
    const bool goes_on = is_adapter_folder(folder);
    LoraSpec lora = *spec.lora;
    fs::path base = fs::absolute(folder).lexically_normal();
    if (goes_on) {
        const Result<AdapterConfig> config = read_adapter_config(folder);
        const Result<fs::path> named = config ? base_of_adapter(folder, *config) : config.error();
        if (!named) {
            return invalid_at("/student/model", named.error());
        }
        Result<LoraSpec> agreed = agreed_spec(lora, *config, folder);
        if (!agreed) {
            return agreed.error();
        }
        base = *named;
        lora = std::move(*agreed);
    }
    const ComputeDtype dtype = resolve_dtype(spec.dtype, device);
    Result<ModelConfig> config = read_model_config(base, families);
    if (!config) {
        return invalid_at("/student/model", config.error());
    }
    const std::unique_ptr<CausalLm> declared = make_decoder(*config, dtype, {torch::kCPU});
    Result<void> fits = declare_adapters(*declared, lora, training.seed);
    if (fits) {
        fits = check_training_memory(*declared, training, "/student/lora", max_bytes);
    }
    if (!fits) {
        return fits.error();
    }
    Result<std::unique_ptr<CausalLm>> network =
        load_causal_lm(std::move(*config), base, dtype, device, WeightUse::inference);
    if (!network) {
        return network;
    }
    Result<void> made = declare_adapters(**network, lora, training.seed);
    if (made) {
        initialize_adapters(**network);
        made = goes_on ? read_adapters(**network, folder) : Result<void>();
    }
    if (made) {
        made = describe_adapters(**network, base);
    }
    return made ? std::move(network) : made.error();
}

/// Declares the network, which takes no memory, and counts its parameters.
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
        (*network)->set_dropout_seed(training.seed);
    }
    if (network && spec.quantization == Quantization::ternary) {
        if (const Result<void> made = make_ternary(**network, spec.quantize_modules); !made) {
            return made.error();
        }
    }
    return network;
}

}  // namespace distilld::models

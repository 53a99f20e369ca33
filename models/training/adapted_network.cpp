#include "models/training/adapted_network.hpp"

#include <array>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "models/families/adapter_config.hpp"
#include "models/network/decoder.hpp"
#include "models/network/lora.hpp"
#include "models/weights/weight_folder.hpp"

namespace distilld::models {
namespace {

namespace fs = std::filesystem;

/// What adapters of a folder were trained as, a spec cannot make otherwise.
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

std::string gibibytes(std::uint64_t bytes) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.1f GiB", static_cast<double>(bytes) / (1U << 30U));
    return text.data();
}

/// Of a network that is declared and holds nothing yet.
Result<void> check_memory(const CausalLm& network, std::uint64_t max_bytes) {
    constexpr std::uint64_t kTensors = 4;  // weights, gradients, two moments
    const std::uint64_t learning = trainable_count(network.groups());
    const std::uint64_t frozen = parameter_count(network.groups()) - learning;
    const std::uint64_t bytes = frozen * c10::elementSize(to_scalar_type(network.dtype())) +
                                learning * kTensors * c10::elementSize(master_type(network.dtype()));
    if (max_bytes == 0 || bytes <= max_bytes) {
        return {};
    }
    return invalid_input("/student/lora: " + std::to_string(learning) + " parameters of adapters beside " +
                         std::to_string(frozen) + " frozen ones take " + gibibytes(bytes) +
                         " to train, of which the device has " + gibibytes(max_bytes));
}

/// What the export says of them.
Result<void> describe_adapters(AdapterSet& adapters, const fs::path& base) {
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
    adapters.files.base_sha256 = std::move(*hash);
    adapters.files.config_json =
        to_adapter_config_json({base.string(), spec.r, spec.alpha, spec.dropout, spec.target_modules});
    return {};
}

}  // namespace

Result<std::unique_ptr<CausalLm>> make_adapted_network(const StudentSpec& spec, std::uint64_t seed,
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
            return invalid_input("/student/model: " + named.error().message);
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
        return invalid_input("/student/model: " + config.error().message);
    }
    const std::unique_ptr<CausalLm> declared = make_decoder(*config, dtype, {torch::kCPU});
    Result<void> fits = declare_adapters(*declared, lora, seed);
    if (fits) {
        fits = check_memory(*declared, max_bytes);
    }
    if (!fits) {
        return fits.error();
    }
    Result<std::unique_ptr<CausalLm>> network =
        load_causal_lm(std::move(*config), base, dtype, device, WeightUse::inference);
    if (!network) {
        return network;
    }
    Result<void> made = declare_adapters(**network, lora, seed);
    if (made) {
        initialize_adapters(**network);
        made = goes_on ? read_adapters(**network, folder) : Result<void>();
    }
    if (made) {
        made = describe_adapters(*(*network)->adapters(), base);
    }
    return made ? std::move(network) : made.error();
}

}  // namespace distilld::models

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld::models {

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";

/// adapter_config.json of PEFT's LoRA, as far as it is understood.
struct AdapterConfig {
    std::string base;  ///< base_model_name_or_path
    std::int64_t r = 8;
    double alpha = 8.0;
    double dropout = 0.0;
    std::vector<std::string> target_modules;  ///< empty: "all-linear"
    bool fan_in_fan_out = false;              ///< written; what is read follows from the base
};

/// Whether `folder` has an adapter_config.json.
[[nodiscard]] bool is_adapter_folder(const std::filesystem::path& folder);

/// adapter_config.json of `folder`. Refused by name: another peft_type than LORA, and every option that would change
/// what is computed (use_dora, use_rslora, bias, modules_to_save, rank_pattern, …) or that is not known, unless it has
/// the value at which it does nothing.
Result<AdapterConfig> read_adapter_config(const std::filesystem::path& folder);

/// adapter_config.json that PEFT reads.
[[nodiscard]] std::string to_adapter_config_json(const AdapterConfig& config);

/// The folder of the base: base_model_name_or_path, a relative one from the working directory, or else from `folder`.
/// An error names adapter_config.json when there is no such folder.
Result<std::filesystem::path> base_of_adapter(const std::filesystem::path& folder, const AdapterConfig& config);

/// Where the files of a model lie that are not its weights: `folder`, but of a PEFT folder without `file` its base.
[[nodiscard]] std::filesystem::path folder_with(const std::filesystem::path& folder, const std::string& file);

}  // namespace distilld::models

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld::models {

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";

/// The supported fields of PEFT's adapter_config.json for LoRA.
struct AdapterConfig {
    std::string base;  ///< base_model_name_or_path
    std::int64_t r = 8;
    double alpha = 8.0;
    double dropout = 0.0;
    std::vector<std::string> target_modules;  ///< empty: "all-linear"
    bool fan_in_fan_out = false;              ///< only written; when reading, it follows from the base
};

/// Whether `folder` has an adapter_config.json.
[[nodiscard]] bool is_adapter_folder(const std::filesystem::path& folder);

/// Reads adapter_config.json of `folder`. Refuses by name: a peft_type other than LORA, and every option that is
/// unknown or changes the computation (use_dora, use_rslora, bias, modules_to_save, rank_pattern, …), unless its value
/// has no effect.
Result<AdapterConfig> read_adapter_config(const std::filesystem::path& folder);

/// adapter_config.json in PEFT's form.
[[nodiscard]] std::string to_adapter_config_json(const AdapterConfig& config);

/// The base's folder, base_model_name_or_path: if relative, below the working directory or else below `folder`. If
/// there is no such folder, the error names adapter_config.json.
Result<std::filesystem::path> base_of_adapter(const std::filesystem::path& folder, const AdapterConfig& config);

/// The folder that holds a model's files other than weights: `folder`, or the base of a PEFT folder without `file`.
[[nodiscard]] std::filesystem::path folder_with(const std::filesystem::path& folder, const std::string& file);

}  // namespace distilld::models

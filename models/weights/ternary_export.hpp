#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld::models {

struct ModelExport;

inline constexpr const char* kTernaryFolder = "ternary";

/// Properties of ternary weights for an export, other than their values.
struct TernaryExport {
    std::vector<std::string> modules;  ///< "model.layers.0.mlp.up_proj": ternary; its weight's name adds ".weight"
    std::string config_json;           ///< with quantization_config
};

/// Writes a model folder in transformers' BitNet format (quant_method "bitnet", linear_class "bitlinear",
/// quantization_mode "offline"). Each ternary module has `weight` [outputs / 4, inputs] uint8 with four values per byte
/// (pack_ternary()) and `weight_scale` [1], one over the scale, in the weight's original dtype; all else is as in the
/// model's own export. Ternary values are computed from the weights in that dtype. Each module's outputs must be
/// divisible by four. Errors name the path.
Result<std::vector<std::filesystem::path>> write_ternary_folder(const std::filesystem::path& folder,
                                                                const ModelExport& model);

}  // namespace distilld::models

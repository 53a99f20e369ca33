#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld::models {

struct ModelExport;

inline constexpr const char* kTernaryFolder = "ternary";

/// What an export of ternary weights knows beside their values.
struct TernaryExport {
    std::vector<std::string> modules;  ///< "model.layers.0.mlp.up_proj": ternary, its weight is that with ".weight"
    std::string config_json;           ///< with quantization_config
};

/// A model folder in transformers' BitNet format (quant_method "bitnet", linear_class "bitlinear",
/// quantization_mode "offline"): of each ternary module `weight` [outputs / 4, inputs] uint8 with four values a byte
/// (pack_ternary()) and `weight_scale` [1], one over the scale, in the dtype that the weight came in; all else as in
/// the model's own export. Ternary values are those of the weights in that dtype. The outputs of each are divisible by
/// four. Errors name the path.
Result<std::vector<std::filesystem::path>> write_ternary_folder(const std::filesystem::path& folder,
                                                                const ModelExport& model);

}  // namespace distilld::models

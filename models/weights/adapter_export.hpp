#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/weights/weight_folder.hpp"

namespace distilld::models {

struct ModelExport;

inline constexpr const char* kAdapterWeightsFile = "adapter_model.safetensors";
inline constexpr const char* kMergedFolder = "merged";

/// Properties of adapters for an export, other than their values.
struct AdapterExport {
    struct Module {
        std::string name;  ///< "model.layers.0.self_attn.q_proj"; its weight's name adds ".weight"
        std::string a;     ///< names of its two parameters
        std::string b;
        bool transposed = false;  ///< the module's weight is [inputs, outputs]
    };
    std::string config_json;  ///< adapter_config.json
    std::filesystem::path base_folder;
    NamePrefix base_names;                  ///< the prefix that its files may leave out
    std::string base_sha256;                ///< WeightFolder::hash() when the base was read
    std::vector<std::string> base_tensors;  ///< tensors of the base that belong to the network
    std::vector<Module> modules;
    double scaling = 1.0;
    bool merge = false;  ///< write the merged model too
};

/// Writes a PEFT folder: adapter_model.safetensors (model.parameters, which are the adapters'), tokenizer files and,
/// last, adapter_config.json. With merge, first writes `folder`/merged as a model of its own: base tensors as they are
/// in the base's files, those with an adapter as W + scaling·B·A, computed in fp32 and rounded to the file dtype of W.
/// Removes files of a whole model from `folder`, since they would be taken for the student. Returns the files that it
/// wrote. Errors name the path; a base that has changed since it was read is an error.
Result<std::vector<std::filesystem::path>> write_adapter_folder(const std::filesystem::path& folder,
                                                                const ModelExport& model);

}  // namespace distilld::models

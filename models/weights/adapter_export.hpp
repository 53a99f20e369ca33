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

/// What an export of low-rank adapters knows beside their values.
struct AdapterExport {
    struct Module {
        std::string name;  ///< "model.layers.0.self_attn.q_proj"; its weight is that with ".weight"
        std::string a;     ///< names of its two parameters
        std::string b;
        bool transposed = false;  ///< the module's weight is [inputs, outputs]
    };
    std::string config_json;  ///< adapter_config.json
    std::filesystem::path base_folder;
    NamePrefix base_names;                  ///< as its files may shorten them
    std::string base_sha256;                ///< WeightFolder::hash() when the base was read
    std::vector<std::string> base_tensors;  ///< those of the base that belong to the network
    std::vector<Module> modules;
    double scaling = 1.0;
    bool merge = false;  ///< write the merged model too
};

/// A PEFT folder: adapter_model.safetensors (the parameters, which are those of the adapters), tokenizer files and,
/// last, adapter_config.json. With merge, `folder`/merged is before that written as a model of its own: base tensors as
/// they are in its files, those with an adapter W + scaling·B·A, computed in fp32 and rounded to the dtype that W came
/// in. Files of a whole model in `folder` are removed: they would be taken for the student. Returns the files that it
/// wrote. Errors name the path; a base that has changed since it was read is one.
Result<std::vector<std::filesystem::path>> write_adapter_folder(const std::filesystem::path& folder,
                                                                const ModelExport& model);

}  // namespace distilld::models

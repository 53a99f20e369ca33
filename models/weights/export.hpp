#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/network/parameter.hpp"
#include "models/weights/adapter_export.hpp"
#include "models/weights/safetensors.hpp"
#include "models/weights/ternary_export.hpp"

namespace distilld::models {

/// A model as a Hugging Face folder holds it.
struct ModelExport {
    std::vector<Parameter> parameters;  ///< masters on any device; each is written in its `saved` dtype
    std::string config_json;
    std::string generation_config_json;
    std::filesystem::path tokenizer_folder;  ///< tokenizer files are copied from it; empty = none
    /// The parameters are those of adapters, and a PEFT folder is written; the configs are of the merged model.
    std::optional<AdapterExport> adapter;
    /// Beside the model the same is written with ternary weights, to ternary/.
    std::optional<TernaryExport> ternary;
};

/// The files that an export has written.
using ExportedPaths = std::vector<std::filesystem::path>;

/// The only way a model gets out: model.safetensors (metadata format=pt), generation_config.json, tokenizer files byte
/// for byte, and config.json last, because a folder without it is not taken for a model. `folder` is created; each file
/// is written atomically. Weights that are not finite in their saved dtype are refused before anything is written.
/// Of adapters it is write_adapter_folder(); of ternary weights write_ternary_folder() before it. Errors name the path.
Result<ExportedPaths> write_model_folder(const std::filesystem::path& folder, const ModelExport& model);

/// Both, when the second is no error.
Result<ExportedPaths> and_those(ExportedPaths paths, Result<ExportedPaths> more);

/// The parameters in their saved dtypes; an error that names one that is not finite, and `folder`.
Result<NamedTensors> exported_tensors(const std::filesystem::path& folder, const ModelExport& model);

/// A model folder with these tensors and what `model` has beside its parameters.
Result<ExportedPaths> write_model_files(const std::filesystem::path& folder, const NamedTensors& tensors,
                                        const ModelExport& model);

/// Byte-for-byte copies of the tokenizer files that `from_folder` has (tokenizer.json, tokenizer_config.json,
/// special_tokens_map.json, vocab.json, merges.txt, tokenizer.model, chat_template.jinja, added_tokens.json), each
/// written atomically. `to_folder` must exist. A folder without any is fine. Where both are one folder, nothing is
/// written, and the files count as written.
Result<ExportedPaths> copy_tokenizer_files(const std::filesystem::path& from_folder,
                                           const std::filesystem::path& to_folder);

/// As config.json calls it: "float32", "bfloat16", "float16".
[[nodiscard]] const char* dtype_name(torch::ScalarType type) noexcept;

}  // namespace distilld::models

#pragma once

#include <torch/types.h>

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

/// The content of a Hugging Face model folder.
struct ModelExport {
    std::vector<Parameter> parameters;  ///< masters on any device; each is written in its `saved` dtype
    std::string config_json;
    std::string generation_config_json;
    std::filesystem::path tokenizer_folder;  ///< tokenizer files are copied from it; empty = none
    /// The parameters are adapters, and the export is a PEFT folder; the configs are of the merged model.
    std::optional<AdapterExport> adapter;
    /// Also writes the model with ternary weights, to ternary/.
    std::optional<TernaryExport> ternary;
};

/// The files that an export has written.
using ExportedPaths = std::vector<std::filesystem::path>;

/// The only way to export a model: model.safetensors (metadata format=pt), generation_config.json, tokenizer files byte
/// for byte, and config.json last, because a folder without it does not count as a model. Creates `folder`; writes each
/// file atomically. Refuses weights that are not finite in their saved dtype before it writes anything. For adapters,
/// calls write_adapter_folder(); for ternary weights, write_ternary_folder() first. Errors name the path.
Result<ExportedPaths> write_model_folder(const std::filesystem::path& folder, const ModelExport& model);

/// Both, unless the second is an error.
Result<ExportedPaths> and_those(ExportedPaths paths, Result<ExportedPaths> more);

/// The parameters in their saved dtypes. A parameter that is not finite is an error that names it and `folder`.
Result<NamedTensors> exported_tensors(const std::filesystem::path& folder, const ModelExport& model);

/// Writes a model folder with these tensors and everything of `model` except its parameters.
Result<ExportedPaths> write_model_files(const std::filesystem::path& folder, const NamedTensors& tensors,
                                        const ModelExport& model);

/// Byte-for-byte copies of the tokenizer files that `from_folder` has (tokenizer.json, tokenizer_config.json,
/// special_tokens_map.json, vocab.json, merges.txt, tokenizer.model, chat_template.jinja, added_tokens.json), each
/// written atomically. `to_folder` must exist. A folder without any is fine. If both are the same folder, nothing is
/// written, but the result lists the files.
Result<ExportedPaths> copy_tokenizer_files(const std::filesystem::path& from_folder,
                                           const std::filesystem::path& to_folder);

/// Removes a whole model beside which an adapter is written; first the file that makes the folder a model.
Result<void> remove_model_files(const std::filesystem::path& folder);

/// The dtype's name in config.json: "float32", "bfloat16", "float16".
[[nodiscard]] const char* dtype_name(torch::ScalarType type) noexcept;

}  // namespace distilld::models

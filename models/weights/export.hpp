#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/network/parameter.hpp"

namespace distilld::models {

/// A model as a Hugging Face folder holds it.
struct ModelExport {
    std::vector<Parameter> parameters;  ///< masters on any device; each is written in its `saved` dtype
    std::string config_json;
    std::string generation_config_json;
    std::filesystem::path tokenizer_folder;  ///< tokenizer files are copied from it; empty = none
};

/// The only way a model gets out: model.safetensors (metadata format=pt), generation_config.json, tokenizer files byte
/// for byte, and config.json last, because a folder without it is not taken for a model. `folder` is created; each file
/// is written atomically. Weights that are not finite in their saved dtype are refused before anything is written.
/// Errors name the path.
Result<void> write_model_folder(const std::filesystem::path& folder, const ModelExport& model);

/// Byte-for-byte copies of the tokenizer files that `from_folder` has (tokenizer.json, tokenizer_config.json,
/// special_tokens_map.json, vocab.json, merges.txt, tokenizer.model, chat_template.jinja, added_tokens.json), each
/// written atomically. `to_folder` must exist. A folder without any is fine.
Result<void> copy_tokenizer_files(const std::filesystem::path& from_folder, const std::filesystem::path& to_folder);

/// As config.json calls it: "float32", "bfloat16", "float16".
[[nodiscard]] const char* dtype_name(torch::ScalarType type) noexcept;

}  // namespace distilld::models

#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "models/checkpoint/manifest.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld::models {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

/// What a snapshot holds; the tensors lie in host memory and belong to it alone.
struct SnapshotContent {
    RunState run;
    std::uint64_t adam_steps = 0;
    std::string shape_json;   ///< canonical config of the network, compared on restore
    std::string config_json;  ///< config.json of the exported model
    std::string generation_config_json;
    NamedTensors weights;                         ///< fp32 masters under Hugging Face names
    std::vector<torch::ScalarType> saved_dtypes;  ///< of `weights` in the exported model
    NamedTensors optimizer;                       ///< LayeredAdamW::state()
    std::filesystem::path tokenizer_folder;       ///< tokenizer files of the exported model; empty = none
};

/// Checkpoint folder: model.safetensors, optimizer.safetensors (both fp32), state.json. Model folder: config.json,
/// generation_config.json, model.safetensors in the dtypes the student was read in, tokenizer files byte for byte.
std::shared_ptr<const StudentSnapshot> make_student_snapshot(SnapshotContent content);

/// Reads a checkpoint into `weights` and `optimizer` (the live tensors) after checking all of it: hashes, the shape of
/// the network, names, shapes and dtypes. On an error, which names the file and the mismatch, nothing was changed.
Result<CheckpointManifest> load_student_checkpoint(const std::filesystem::path& folder, const std::string& shape_json,
                                                   const NamedTensors& weights, const NamedTensors& optimizer);

}  // namespace distilld::models

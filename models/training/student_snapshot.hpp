#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/checkpoint/manifest.hpp"
#include "models/network/parameter.hpp"
#include "models/weights/export.hpp"
#include "models/weights/safetensors.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld::models {

/// The content of a snapshot, which alone owns the tensors; they lie in host memory.
struct SnapshotContent {
    RunState run;
    std::uint64_t adam_steps = 0;
    std::string canonical_config;  ///< CausalLm::canonical_config(), compared on restore
    ModelExport model;             ///< masters under Hugging Face names, and the other content of the exported model
    NamedTensors optimizer;        ///< LayeredOptimizer::state()
};

/// Checkpoint folder: model.safetensors, optimizer.safetensors (both in the masters' dtype, fp32), state.json. Model
/// folder: see write_model_folder().
std::shared_ptr<const StudentSnapshot> make_student_snapshot(SnapshotContent content);

/// Reads a checkpoint into the masters of `parameters` and into `optimizer` (the live tensors, on their device) after
/// checking all of it: hashes, the shape of the network, names, shapes and dtypes. An error names the file and the
/// mismatch, and leaves everything unchanged.
Result<CheckpointManifest> load_student_checkpoint(const std::filesystem::path& folder,
                                                   const std::string& canonical_config,
                                                   const std::vector<Parameter>& parameters,
                                                   const NamedTensors& optimizer);

}  // namespace distilld::models

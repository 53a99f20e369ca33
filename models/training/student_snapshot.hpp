#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
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
    std::string canonical_config;  ///< JSON object that identifies the network, compared on restore
    NamedTensors weights;          ///< what training changes
    NamedTensors optimizer;        ///< LayeredOptimizer::state()
    /// Writes the exported model into a folder. Any thread.
    std::function<Result<ExportedPaths>(const std::filesystem::path& folder)> write_model;
};

/// A copy in host memory, without a record.
[[nodiscard]] torch::Tensor host_copy(const torch::Tensor& tensor);

/// The masters of the trainable parameters, under their names.
[[nodiscard]] NamedTensors trained_masters(const std::vector<Parameter>& parameters);

/// Checkpoint folder: model.safetensors, optimizer.safetensors (both in the masters' dtype), state.json.
std::shared_ptr<const StudentSnapshot> make_student_snapshot(SnapshotContent content);

/// Reads a checkpoint into `weights` and `optimizer` (the live tensors, on their device) after checking all of it:
/// hashes, the shape of the network, names, shapes and dtypes. An error names the file and the mismatch, and leaves
/// everything unchanged.
Result<CheckpointManifest> load_student_checkpoint(const std::filesystem::path& folder,
                                                   const std::string& canonical_config, const NamedTensors& weights,
                                                   const NamedTensors& optimizer);

}  // namespace distilld::models

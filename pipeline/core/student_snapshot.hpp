#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// State of the run that travels with a checkpoint beside weights and optimizer.
struct RunState {
    std::uint64_t step = 0;              ///< optimizer steps done
    std::uint64_t next_micro_batch = 0;  ///< first micro-batch not yet trained on
    std::uint64_t tokens_seen = 0;
    std::string spec_json;  ///< the spec the run was started with
    ProgressEvent last;     ///< of the step above; all 0 in a checkpoint that is older than this field
};

/// A copy of everything a checkpoint holds, in host memory, that no longer changes. Opaque outside models/.
class StudentSnapshot {
  public:
    virtual ~StudentSnapshot() = default;
    /// Writes `folder` (created; must not exist): commit by the caller's rename. Any thread.
    virtual Result<void> write_checkpoint(const std::filesystem::path& folder) const = 0;
    /// Writes the Hugging Face files of the student into `folder`, each by temporary name and rename, and returns their
    /// paths. Any thread.
    virtual Result<std::vector<std::filesystem::path>> write_model(const std::filesystem::path& folder) const = 0;
};

}  // namespace distilld

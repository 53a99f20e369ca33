#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// State of the run that a checkpoint holds in addition to weights and optimizer.
struct RunState {
    std::uint64_t step = 0;              ///< optimizer steps done
    std::uint64_t next_micro_batch = 0;  ///< first micro-batch not yet trained on
    std::uint64_t tokens_seen = 0;
    std::string spec_json;  ///< the spec the run was started with
    ProgressEvent last;     ///< progress at `step`; all 0 in checkpoints older than this field
};

/// An immutable copy, in host memory, of everything a checkpoint holds. Opaque outside models/.
class StudentSnapshot {
  public:
    virtual ~StudentSnapshot() = default;
    /// Creates and writes `folder`, which must not exist; the caller commits it by a rename. Any thread.
    virtual Result<void> write_checkpoint(const std::filesystem::path& folder) const = 0;
    /// Writes the Hugging Face files of the student into `folder`, each under a temporary name and renamed, and returns
    /// their paths. Any thread.
    virtual Result<std::vector<std::filesystem::path>> write_model(const std::filesystem::path& folder) const = 0;
};

}  // namespace distilld

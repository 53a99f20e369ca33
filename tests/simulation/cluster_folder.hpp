#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tests/simulation/cluster_stage.hpp"

namespace distilld::test {

/// The weights of a job after so many steps: equal for whoever computes them in order.
[[nodiscard]] std::uint64_t weights_after(std::uint32_t steps);
[[nodiscard]] std::uint64_t next_weights(std::uint64_t weights, std::uint32_t step);

/// A worker that has, or had, a folder. It lives as long as the worker.
struct FolderHolder {
    std::weak_ptr<Process> process;
    std::uint32_t node = 0;
    bool stopped = false;  ///< the worker alone
    [[nodiscard]] bool stands() const {
        const auto found = process.lock();
        return stopped || (found && found->stopped());
    }
};
using FolderHolderPtr = std::shared_ptr<const FolderHolder>;

/// A job's folder on a file system that all nodes share, with its fence: a model of base/files/folder_fence.hpp, as
/// docs/decisions/0011-fences.md has it. A partitioned node reaches it, which is the hard case.
class JobFolder {
  public:
    explicit JobFolder(Stage& stage, std::string job) : stage_(stage), job_(std::move(job)) {}

    enum class Take { taken, waits, refused };
    /// `since`: when this worker first asked. `holder` has the folder while it lives.
    Take take(std::uint64_t attempt, const FolderHolderPtr& holder, Millis since);
    /// False: another worker has the folder, and nothing has changed.
    bool commit(const FolderHolderPtr& holder, std::uint64_t attempt, std::uint32_t step, std::uint64_t weights,
                bool exported);

    struct Checkpoint {
        std::uint32_t step = 0;
        std::uint64_t weights = 0;
    };
    [[nodiscard]] const std::optional<Checkpoint>& newest() const { return newest_; }
    /// By the attempt that made it.
    [[nodiscard]] const std::optional<std::uint64_t>& exported() const { return exported_; }

  private:
    Stage& stage_;
    std::string job_;
    std::uint64_t attempt_ = 0;
    const FolderHolder* holder_ = nullptr;
    std::weak_ptr<const FolderHolder> lives_;
    std::uint64_t last_commit_ = 0;  ///< attempt
    std::optional<Checkpoint> newest_;
    std::optional<std::uint64_t> exported_;
};

/// By the ids of the jobs.
using JobFolders = std::map<std::string, JobFolder>;

}  // namespace distilld::test

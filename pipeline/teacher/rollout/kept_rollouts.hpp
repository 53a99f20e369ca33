#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "pipeline/teacher/rollout/rollout_codec.hpp"

namespace distilld {

/// The answers to one micro-batch.
struct KeptAnswers {
    std::uint64_t micro_batch = 0;
    std::uint64_t version = 0;        ///< steps after which the weights wrote them
    std::vector<std::uint64_t> rows;  ///< of the prompts
    std::vector<Rollout> answers;     ///< one per row
};

/// The student's answers in a file of JSON lines, so that a run that goes on trains on the same ones: a line with the
/// run's identity, then one per micro-batch. Any thread.
class KeptRollouts {
  public:
    /// Calls `change` only while the run has the folder (FolderFence::commit()).
    using Guard = std::function<Result<void>(const std::function<Result<void>()>& change)>;

    /// Opens the file if its first line names a run that `is_ours`, without what follows its last whole line; otherwise
    /// begins a new one of `run`. Errors name the file.
    static Result<std::unique_ptr<KeptRollouts>> open(std::filesystem::path file, const std::string& run,
                                                      const std::function<bool(const std::string& run)>& is_ours,
                                                      Guard guard);

    /// Opens what another run has kept, to read it. `check` says why its run's answers are not those wanted.
    static Result<std::unique_ptr<KeptRollouts>> open_other(
        std::filesystem::path file, const std::function<Result<void>(const std::string& run)>& check);

    [[nodiscard]] bool has(std::uint64_t micro_batch) const;
    [[nodiscard]] std::uint64_t count() const;
    /// Those of a micro-batch that it has. Reads the disk.
    [[nodiscard]] Result<KeptAnswers> read(std::uint64_t micro_batch) const;
    /// Adds answers durably, in a single change. Those that it has are left alone.
    Result<void> append(const std::vector<KeptAnswers>& answers);

  private:
    struct Line {
        std::uint64_t begin = 0;
        std::uint64_t bytes = 0;
    };

    KeptRollouts(std::filesystem::path file, Guard guard) : file_(std::move(file)), guard_(std::move(guard)) {}
    [[nodiscard]] Result<bool> load(const std::function<bool(const std::string& run)>& is_ours);

    std::filesystem::path file_;
    Guard guard_;
    mutable std::mutex mutex_;
    std::map<std::uint64_t, Line> lines_;  // by micro-batch
    std::uint64_t end_ = 0;                // of the last whole line
};

/// The answers to `tokens`, which `kept` has, as RolloutCodec describes them. Decoding fails if they are answers to
/// other prompts, or have ids outside the vocabulary.
[[nodiscard]] EncodedAnswer kept_answer(std::shared_ptr<const KeptRollouts> kept,
                                        std::shared_ptr<const TokenBatch> tokens, std::uint32_t vocabulary);

}  // namespace distilld

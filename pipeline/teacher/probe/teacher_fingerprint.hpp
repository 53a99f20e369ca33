#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "pipeline/core/micro_batch.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// A teacher's answer to the probe's tokens in short form, for checkpoints: JSON text with the most likely tokens of
/// each position and their log-probabilities. `targets` have been checked. Empty for hidden states.
[[nodiscard]] std::string teacher_fingerprint(const TeacherTargets& targets);

/// Whether two fingerprints can be of the same model. Another machine, precision or batch changes log-probabilities a
/// little, another model changes them more. True if either is empty or unreadable.
[[nodiscard]] bool same_teacher(const std::string& a, const std::string& b);

/// How two answers to the same tokens differ, position by position. A position is unlike if fewer than half of its 8
/// most likely tokens are the same in both, or if the log-probabilities of a shared token differ by more than 0.25. For
/// hidden states, it is unlike if the difference is longer than a quarter of the longer state; so is an output of a
/// teacher of samples, which counts as one position. Half precision and sums in another order change either by
/// hundredths.
struct AnswerDifference {
    std::size_t positions = 0;  ///< compared: fewer than 64, evenly spread
    std::size_t unlike = 0;
    double max_apart = 0;  ///< in nats, for tokens that both name; for hidden states, a share of their length

    /// Most positions are unlike, which rounding cannot cause.
    [[nodiscard]] bool of_other_models() const noexcept { return 2 * unlike > positions; }
    /// Describes the difference for users.
    [[nodiscard]] std::string text(TeacherTargets::Kind kind) const;
};

/// Compares two answers of the same kind, width and shape. Any thread.
[[nodiscard]] AnswerDifference difference_of(const TeacherTargets& a, const TeacherTargets& b);

/// One micro-batch in this many is requested from two replicas, to detect a changed model. The second answer is only
/// compared, never trained on.
inline constexpr std::uint64_t kComparedEvery = 64;

[[nodiscard]] constexpr bool is_compared(std::uint64_t micro_batch) noexcept {
    return micro_batch % kComparedEvery == kComparedEvery - 1;
}

/// Two answers of replicas to one micro-batch that differ by more than rounding.
struct ReplicaDifference {
    std::size_t asked = 0;  ///< the endpoint whose answer was used
    std::size_t second = 0;
    std::uint64_t micro_batch = 0;
    std::string text;  ///< describes the difference
};

/// Passes results of decoders to the teacher, which the decoders may outlive. One comparison at a time. Any thread.
class ReplicaComparisons {
  public:
    /// False if another comparison is running.
    [[nodiscard]] bool begin();
    void end(std::optional<ReplicaDifference> found);
    /// The result since the last call, if any.
    [[nodiscard]] std::optional<ReplicaDifference> take();

  private:
    std::mutex mutex_;
    bool under_way_ = false;
    std::optional<ReplicaDifference> found_;
};

/// Returns `first`, which is compared with `second` when decoded. An undecodable second answer is ignored. The caller
/// has called comparisons->begin(); end() is called even if the answer is never decoded. `numbers` lacks only the text.
[[nodiscard]] EncodedAnswer compared_answer(EncodedAnswer first, EncodedAnswer second, ReplicaDifference numbers,
                                            std::shared_ptr<ReplicaComparisons> comparisons);

}  // namespace distilld

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// Which micro-batches two replicas are asked for, so that one that serves another model since the probe is noticed:
/// one in so many, by their numbers. What the second says is compared and thrown away: it reaches no weight.
inline constexpr std::uint64_t kComparedEvery = 64;

[[nodiscard]] constexpr bool is_compared(std::uint64_t micro_batch) noexcept {
    return micro_batch % kComparedEvery == kComparedEvery - 1;
}

/// Two answers of replicas to one micro-batch that rounding does not explain.
struct ReplicaDifference {
    std::size_t asked = 0;  ///< the endpoint whose answer was taken
    std::size_t second = 0;
    std::uint64_t micro_batch = 0;
    std::string text;  ///< by how much
};

/// What decoders found, for the teacher to take; they may outlive it. One comparison at a time. Any thread.
class ReplicaComparisons {
  public:
    /// False: there is one under way, which has to end first.
    [[nodiscard]] bool begin();
    void end(std::optional<ReplicaDifference> found);
    /// What was found since the last call.
    [[nodiscard]] std::optional<ReplicaDifference> take();

  private:
    std::mutex mutex_;
    bool under_way_ = false;
    std::optional<ReplicaDifference> found_;
};

/// The answer `first`, compared with `second` when it is decoded. A second answer that cannot be decoded says nothing.
/// comparisons->begin() has been called; end() is, whether the answer is decoded or not. `numbers` is filled in but for
/// the text.
[[nodiscard]] EncodedAnswer compared_answer(EncodedAnswer first, EncodedAnswer second, ReplicaDifference numbers,
                                            std::shared_ptr<ReplicaComparisons> comparisons);

}  // namespace distilld

#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "pipeline/core/micro_batch.hpp"

namespace distilld {

/// The stage decode. The bytes of an answer become targets within the request that brings them (TeacherSource::fetch,
/// on the source's own decode executor), for an answer that cannot be read is a failed request, which the scheduler
/// makes again. So this stage has no loop and no clock: it keeps the decoded answers, which come in any order, until
/// they are handed on in order, and counts them. All calls on the graph's executor.
class DecodeStage {
  public:
    /// `targets` is empty in plain training.
    void keep(std::uint64_t number, std::optional<TeacherTargets> targets);
    /// `number` must be kept.
    [[nodiscard]] std::optional<TeacherTargets> take(std::uint64_t number);

    /// Memory that all answers since the run began have held.
    [[nodiscard]] std::uint64_t decoded_bytes() const noexcept { return decoded_bytes_; }

  private:
    std::map<std::uint64_t, std::optional<TeacherTargets>> kept_;  // bounded by the scheduler's window
    std::uint64_t decoded_bytes_ = 0;
};

}  // namespace distilld

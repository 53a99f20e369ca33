#pragma once

#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// What a step's loss is made of; empty where its parts are not known. A part that does not count towards
/// the loss is 0.
[[nodiscard]] constexpr const char* loss_kind(const ProgressEvent& progress) noexcept {
    const bool kd = progress.kd_loss != 0;
    const bool ce = progress.ce_loss != 0;
    if (kd && ce) {
        return "KD + cross entropy";
    }
    return kd ? "KD" : ce ? "cross entropy" : "";
}

}  // namespace distilld

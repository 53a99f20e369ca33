#pragma once

#include <cmath>

#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// The parts of a step's loss; empty if unknown. (The event has no kd_ratio, but both parts: a loss that equals one of
/// them consists of it.) Of samples: what the terms compare with.
[[nodiscard]] inline const char* loss_kind(const ProgressEvent& progress) noexcept {
    constexpr double kRounding = 1e-6;
    const auto is = [&progress](double part) { return std::abs(progress.loss - part) <= kRounding * std::abs(part); };
    if (!std::isfinite(progress.loss) || (progress.kd_loss == 0 && progress.ce_loss == 0)) {
        return "";
    }
    if (progress.kd_loss == 0 || is(progress.ce_loss)) {
        return progress.of_samples ? "data" : "cross entropy";
    }
    if (is(progress.kd_loss)) {
        return progress.of_samples ? "teacher" : "KD";
    }
    return progress.of_samples ? "teacher + data" : "KD + cross entropy";
}

/// A loss with its unit: "2.3456 nats/token"; terms of samples have no unit in common.
[[nodiscard]] inline const char* loss_unit(bool of_samples) noexcept {
    return of_samples ? "" : " nats/token";
}

}  // namespace distilld

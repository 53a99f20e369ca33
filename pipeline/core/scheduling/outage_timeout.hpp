#pragma once

#include <optional>

#include "base/time.hpp"

namespace distilld {

/// Timeout of an outage, which lasts from the first failure after the last answer to the next answer. A slow teacher is
/// not an outage.
class OutageTimeout {
  public:
    /// `limit` 0: no timeout.
    explicit OutageTimeout(Nanos limit) : limit_(limit) {}

    void on_answer() noexcept { silent_since_.reset(); }
    void on_failure(Instant now) noexcept { silent_since_ = silent_since_.value_or(now); }

    [[nodiscard]] const std::optional<Instant>& silent_since() const noexcept { return silent_since_; }
    /// When it expires without an answer.
    [[nodiscard]] std::optional<Instant> ends() const {
        return silent_since_ && limit_ > Nanos(0) ? std::optional(*silent_since_ + limit_) : std::nullopt;
    }

  private:
    Nanos limit_;
    std::optional<Instant> silent_since_;
};

}  // namespace distilld

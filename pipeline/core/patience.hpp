#pragma once

#include <optional>

#include "base/time.hpp"

namespace distilld {

/// How long an outage is waited out. It lasts from the first failure after the last answer to the next answer; a
/// teacher that is merely slow does not try anybody's patience.
class Patience {
  public:
    /// `limit` zero: without end.
    explicit Patience(Nanos limit) : limit_(limit) {}

    void on_answer() noexcept { silent_since_.reset(); }
    void on_failure(Instant now) noexcept { silent_since_ = silent_since_.value_or(now); }

    [[nodiscard]] const std::optional<Instant>& silent_since() const noexcept { return silent_since_; }
    /// When it ends if no answer comes.
    [[nodiscard]] std::optional<Instant> ends() const {
        return silent_since_ && limit_ > Nanos(0) ? std::optional(*silent_since_ + limit_) : std::nullopt;
    }

  private:
    Nanos limit_;
    std::optional<Instant> silent_since_;
};

}  // namespace distilld

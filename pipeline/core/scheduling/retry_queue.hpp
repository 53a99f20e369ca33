#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "base/time.hpp"

namespace distilld {

/// Micro-batches with a failed last request: they rest, then become due. The lowest number goes first, because it holds
/// up all others.
class RetryQueue {
  public:
    void add(std::uint64_t micro_batch, Instant at) { resting_.emplace(at, micro_batch); }

    /// The lowest that is due at `now`; it stays until take().
    [[nodiscard]] std::optional<std::uint64_t> due(Instant now) {
        while (!resting_.empty() && resting_.begin()->first <= now) {
            due_.insert(resting_.begin()->second);
            resting_.erase(resting_.begin());
        }
        return due_.empty() ? std::nullopt : std::optional(*due_.begin());
    }
    /// Removes the one that due() returned.
    void take() { due_.erase(due_.begin()); }

    /// When the next resting one becomes due.
    [[nodiscard]] std::optional<Instant> next_due() const {
        return resting_.empty() ? std::nullopt : std::optional(resting_.begin()->first);
    }
    [[nodiscard]] std::size_t size() const noexcept { return resting_.size() + due_.size(); }

  private:
    std::set<std::pair<Instant, std::uint64_t>> resting_;
    std::set<std::uint64_t> due_;
};

}  // namespace distilld

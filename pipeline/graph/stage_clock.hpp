#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "pipeline/core/worker_events.hpp"
#include "pipeline/graph/steady_time.hpp"

namespace distilld {

/// Where the time of one stage went. A stage is in one state at any time; enter() closes the one before. One thread.
class StageClock {
  public:
    enum class State { idle, busy, wait_input, wait_output };

    explicit StageClock(std::string name) : name_(std::move(name)), since_(steady_now()) {}

    /// Returns the time spent in the state that ends.
    Nanos enter(State state) {
        const Instant now = steady_now();
        const Nanos spent = now - since_;
        totals_[static_cast<std::size_t>(state_)] += spent;
        state_ = state;
        since_ = now;
        return spent;
    }
    [[nodiscard]] State state() const noexcept { return state_; }

    /// Totals, the state under way included.
    [[nodiscard]] StageTimes times() const {
        const auto total = [this](State state) {
            const Nanos running = state == state_ ? steady_now() - since_ : Nanos(0);
            return to_seconds(totals_[static_cast<std::size_t>(state)] + running);
        };
        return StageTimes{name_, total(State::busy), total(State::wait_input), total(State::wait_output)};
    }

  private:
    std::string name_;
    State state_ = State::idle;
    Instant since_;
    std::array<Nanos, 4> totals_{};
};

}  // namespace distilld

#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "pipeline/core/stage.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/graph/steady_time.hpp"

namespace distilld {

/// Where the time of one stage went. A stage is in one state at any time; enter() closes the one before. One thread.
class StageClock {
  public:
    enum class State { idle, busy, wait_input, wait_output };

    explicit StageClock(Stage stage) : stage_(stage), since_(steady_now()) {}

    void enter(State state) {
        const Instant now = steady_now();
        total(state_) += now - since_;
        state_ = state;
        since_ = now;
    }
    /// Adds what was spent elsewhere, by a stage that is in no state of its own.
    void add_busy(Nanos spent) { total(State::busy) += spent; }

    /// Totals, the state under way included.
    [[nodiscard]] StageTimes times() const {
        const auto seconds = [this](State state) {
            const Nanos running = state == state_ ? steady_now() - since_ : Nanos(0);
            return to_seconds(totals_[static_cast<std::size_t>(state)] + running);
        };
        return StageTimes{std::string(stage_name(stage_)), seconds(State::busy), seconds(State::wait_input),
                          seconds(State::wait_output)};
    }

  private:
    Nanos& total(State state) { return totals_[static_cast<std::size_t>(state)]; }

    Stage stage_;
    State state_ = State::idle;
    Instant since_;
    std::array<Nanos, 4> totals_{};
};

}  // namespace distilld

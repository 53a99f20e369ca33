#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "pipeline/core/stage.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/graph/steady_time.hpp"

namespace distilld {

/// Where a stage's time went. A stage is in one state at a time; enter() closes the state before. One thread.
class StageClock {
  public:
    enum class State { idle, busy, wait_input, wait_output };

    using Now = std::function<Instant()>;

    explicit StageClock(Stage stage, Now now = steady_now) : stage_(stage), now_(std::move(now)), since_(now_()) {}

    void enter(State state) {
        const Instant now = now_();
        total(state_) += now - since_;
        state_ = state;
        since_ = now;
    }
    /// Adds time spent elsewhere, for a stage without a state of its own.
    void add_busy(Nanos spent) { total(State::busy) += spent; }
    /// Moves `spent`, at most all of it, from `from` to `to`.
    void rebook(State from, State to, Nanos spent) {
        const Nanos moved = std::min(spent, total(from));
        total(from) -= moved;
        total(to) += moved;
    }

    /// Totals, including the current state.
    [[nodiscard]] StageTimes times() const {
        const auto seconds = [this](State state) {
            const Nanos running = state == state_ ? now_() - since_ : Nanos(0);
            return to_seconds(totals_[static_cast<std::size_t>(state)] + running);
        };
        return StageTimes{std::string(stage_name(stage_)), seconds(State::busy), seconds(State::wait_input),
                          seconds(State::wait_output)};
    }

  private:
    Nanos& total(State state) { return totals_[static_cast<std::size_t>(state)]; }

    Stage stage_;
    Now now_;
    State state_ = State::idle;
    Instant since_;
    std::array<Nanos, 4> totals_{};
};

}  // namespace distilld

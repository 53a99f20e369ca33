#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>

/// Virtual time for code with Asio's timers and std::chrono::steady_clock. The program `simulation` is linked so that
/// both ask here (--wrap of the linker), and get the real time where no VirtualClock lives. fsync(2) does nothing
/// there.
namespace distilld::test {

/// The time of the thread that has made it: one at a time per thread. An io_context that is made meanwhile has timers
/// of virtual time; run it with poll(), after fire() has been called for its timers.
class VirtualClock {
  public:
    using Time = std::chrono::steady_clock::time_point;

    VirtualClock();
    ~VirtualClock();
    VirtualClock(const VirtualClock&) = delete;
    VirtualClock& operator=(const VirtualClock&) = delete;

    [[nodiscard]] Time now() const { return now_; }
    void advance(Time to) { now_ = to; }

    /// Descriptor of the newest io_context's timers. Make a steady_timer on it first: Asio waits for that.
    [[nodiscard]] int newest() const { return newest_; }
    /// When the next of its timers is due.
    [[nodiscard]] std::optional<Time> next(int timers) const;
    /// Makes poll() look at its timers.
    void fire(int timers);
    void forget(int timers) { next_.erase(timers); }

    // For the wrapped functions.
    void created(int timers);
    /// False: not one of ours.
    bool set(int timers, std::chrono::nanoseconds delay, bool off);

  private:
    Time now_{std::chrono::hours(1)};
    int newest_ = -1;
    std::map<int, std::optional<Time>> next_;
};

}  // namespace distilld::test

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "pipeline/core/fetch_failure.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

struct TeacherWatchOptions {
    Nanos grace = std::chrono::seconds(5);    ///< of an outage, before it is said that it is waited for
    Nanos repeat = std::chrono::seconds(10);  ///< at most one warning of a kind, and one change of the reason, in it
    Nanos same = std::chrono::minutes(10);    ///< at most one warning of a kind in the same words in it
    Nanos max_hold = std::chrono::seconds(300);
};

/// Says what goes wrong with the teacher: warnings (failed requests, endpoints taken out, Retry-After), throttled with
/// counts of what was swallowed, and a WaitingEvent while the student waits for a teacher of which nothing but failures
/// come. Time is an argument; `wall_clock` gives seconds since the Unix epoch, which events are dated by.
class TeacherWatch {
  public:
    using Emit = std::function<void(const WorkerEvent&)>;

    /// `emit` may be empty.
    TeacherWatch(Emit emit, std::function<double()> wall_clock, TeacherWatchOptions options = {});

    /// `message` names the endpoint.
    void on_failure(FailureKind kind, const std::string& message, Instant now);
    /// `endpoint` asked for a pause.
    void on_retry_after(const std::string& endpoint, Nanos asked, Instant now);
    void on_breaker_opened(const std::string& endpoint, Instant now);

    /// After the news: since when nothing but failures has come (nullopt: an answer was the last), and whether the
    /// student waits.
    void update(const std::optional<Instant>& silent_since, bool student_waits, Instant now);
    /// When update() will have something to say though nothing happens.
    [[nodiscard]] std::optional<Instant> next_wakeup(const std::optional<Instant>& silent_since, bool student_waits,
                                                     Instant now) const;

    [[nodiscard]] const std::string& last_message() const noexcept { return last_message_; }

  private:
    enum class Warning { failure, breaker, hold };
    struct Throttle {
        std::optional<Instant> last;
        std::string said;
        std::uint64_t swallowed = 0;
    };

    void warn(Warning warning, const std::string& text, Instant now);

    Emit emit_;
    std::function<double()> wall_clock_;
    TeacherWatchOptions options_;
    std::array<Throttle, 3> throttles_{};
    std::string last_message_;
    std::optional<Instant> said_at_;  // set while the wait is shown
    std::string said_;
};

}  // namespace distilld

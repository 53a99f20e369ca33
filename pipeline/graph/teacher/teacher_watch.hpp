#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/time.hpp"
#include "pipeline/core/scheduling/fetch_failure.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

struct TeacherWatchOptions {
    Nanos grace = std::chrono::seconds(5);  ///< how long an outage lasts before the wait is reported
    Nanos repeat =
        std::chrono::seconds(10);  ///< at most one warning per kind, and one change of the reason, in this time
    Nanos same = std::chrono::minutes(10);  ///< at most one warning of the same kind and text in this time
    Nanos max_hold = std::chrono::seconds(300);
    Nanos deadline = std::chrono::seconds(60);  ///< of one request
    /// The name of the asked party, for people. Empty: silence means nothing.
    std::string asked{};
};

/// The current state of the teacher.
struct TeacherNews {
    std::optional<Instant> failing_since{};     ///< since when only failures came; nullopt: the last was an answer
    std::optional<Instant> wanted_since{};      ///< since when the student waits for a micro-batch
    std::optional<Instant> unanswered_since{};  ///< since when requests are in flight without any answer
    Nanos usual{};                              ///< how long slow requests have taken so far
};

/// Reports trouble with the teacher. Warnings (failed requests, endpoints taken out, Retry-After) are throttled and
/// count what was suppressed. A WaitingEvent reports that the student waits for a teacher that only fails, or has been
/// silent for much longer than usual. Time is an argument; `wall_clock` gives seconds since the Unix epoch, for the
/// dates of events.
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

    void update(const TeacherNews& news, Instant now);
    /// Nothing is waited for any more, answered or not.
    void end();
    /// When update() may have something to report even if nothing happens.
    [[nodiscard]] std::optional<Instant> next_wakeup(const TeacherNews& news, Instant now) const;
    /// What the student has lost in reported waits that are over.
    [[nodiscard]] Nanos lost() const noexcept { return lost_; }

    [[nodiscard]] const std::string& last_message() const noexcept { return last_message_; }

  private:
    enum class Warning { failure, breaker, hold };
    struct Throttle {
        std::optional<Instant> last;
        std::string said;
        std::uint64_t swallowed = 0;
    };

    void warn(Warning warning, const std::string& text, Instant now);
    /// Since when the student has waited for a silent teacher.
    [[nodiscard]] std::optional<Instant> silence(const TeacherNews& news) const;
    [[nodiscard]] Nanos outage_timeout_of(const TeacherNews& news) const;
    [[nodiscard]] std::string failing_text() const;

    Emit emit_;
    std::function<double()> wall_clock_;
    TeacherWatchOptions options_;
    std::array<Throttle, 3> throttles_{};
    std::string last_message_;
    std::optional<Instant> said_at_;  // set while the wait is shown
    std::string said_;
    Instant began_{};      // of the wait that is shown
    Instant lost_from_{};  // in it
    Nanos lost_{};
};

}  // namespace distilld

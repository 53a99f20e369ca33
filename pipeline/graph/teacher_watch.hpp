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
    Nanos deadline = std::chrono::seconds(60);  ///< of one request
    /// Who is asked, for people. Empty: nobody whose silence means anything.
    std::string asked{};
};

/// How things stand with the teacher.
struct TeacherNews {
    std::optional<Instant> failing_since{};     ///< nothing but failures has come; nullopt: an answer was the last
    std::optional<Instant> wanted_since{};      ///< the student waits for a micro-batch
    std::optional<Instant> unanswered_since{};  ///< requests are under way, and nothing has come
    Nanos usual{};                              ///< what a request that takes long has taken so far
};

/// Says what goes wrong with the teacher: warnings (failed requests, endpoints taken out, Retry-After), throttled with
/// counts of what was swallowed, and a WaitingEvent while the student waits for a teacher of which nothing but failures
/// come, or nothing at all for much longer than usual. Time is an argument; `wall_clock` gives seconds since the Unix
/// epoch, which events are dated by.
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
    /// When update() may have something to say though nothing happens.
    [[nodiscard]] std::optional<Instant> next_wakeup(const TeacherNews& news, Instant now) const;
    /// What the student has lost by waits that were told of and are over.
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
    /// Since when the student has waited for a teacher that says nothing.
    [[nodiscard]] std::optional<Instant> silence(const TeacherNews& news) const;
    [[nodiscard]] Nanos patience_with(const TeacherNews& news) const;
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

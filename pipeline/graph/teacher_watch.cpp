#include "pipeline/graph/teacher_watch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace distilld {

namespace {

std::string in_seconds(Nanos span) {
    return std::to_string(static_cast<std::int64_t>(std::ceil(to_seconds(span)))) + " s";
}

}  // namespace

TeacherWatch::TeacherWatch(Emit emit, std::function<double()> wall_clock, TeacherWatchOptions options)
    : emit_(std::move(emit)), wall_clock_(std::move(wall_clock)), options_(options) {}

void TeacherWatch::warn(Warning warning, const std::string& text, Instant now) {
    Throttle& throttle = throttles_[static_cast<std::size_t>(warning)];
    if (!emit_) {
        return;
    }
    if (throttle.last && now - *throttle.last < (throttle.said == text ? options_.same : options_.repeat)) {
        ++throttle.swallowed;
        return;
    }
    const std::uint64_t swallowed = std::exchange(throttle.swallowed, 0);
    throttle.last = now;
    throttle.said = text;
    emit_(LogEvent{"warn",
                   swallowed == 0 ? text : text + " (and " + std::to_string(swallowed) + " more like it before)"});
}

void TeacherWatch::on_failure(FailureKind kind, const std::string& message, Instant now) {
    last_message_ = message;
    const bool ends = kind == FailureKind::rejected;
    warn(Warning::failure,
         message + " (" + to_string(kind) + (ends ? "): this endpoint is left out" : "): the request is made again"),
         now);
}

void TeacherWatch::on_retry_after(const std::string& endpoint, Nanos asked, Instant now) {
    std::string text = endpoint + " asks to be left alone for " + in_seconds(asked) + " (Retry-After)";
    if (asked > options_.max_hold) {
        text += "; it is for " + in_seconds(options_.max_hold) + " (/teacher/max_retry_after_secs)";
    }
    warn(Warning::hold, text, now);
}

void TeacherWatch::on_breaker_opened(const std::string& endpoint, Instant now) {
    warn(Warning::breaker, endpoint + " is left out until a request that is tried now and then succeeds", now);
}

void TeacherWatch::update(const std::optional<Instant>& silent_since, bool student_waits, Instant now) {
    if (!emit_) {
        return;
    }
    if (!silent_since) {
        if (said_at_) {
            said_at_.reset();
            emit_(WaitingEvent{});
        }
        return;
    }
    if (!said_at_ && (!student_waits || now - *silent_since < options_.grace)) {
        return;
    }
    if (said_at_ && (said_ == last_message_ || now - *said_at_ < options_.repeat)) {
        return;
    }
    said_at_ = now;
    said_ = last_message_;
    emit_(WaitingEvent{"teacher_unavailable", "no answer from the teacher; last: " + last_message_,
                       wall_clock_() - to_seconds(now - *silent_since)});
}

std::optional<Instant> TeacherWatch::next_wakeup(const std::optional<Instant>& silent_since, bool student_waits,
                                                 Instant now) const {
    if (!emit_ || !silent_since) {
        return std::nullopt;
    }
    std::optional<Instant> at;
    if (!said_at_ && student_waits) {
        at = *silent_since + options_.grace;
    } else if (said_at_ && said_ != last_message_) {
        at = *said_at_ + options_.repeat;
    }
    return at && *at > now ? at : std::nullopt;
}

}  // namespace distilld

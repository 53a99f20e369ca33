#include "pipeline/graph/teacher/teacher_watch.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/span_text.hpp"

namespace distilld {

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
    warn(Warning::failure, message + " (" + to_string(kind) + (ends ? "): this endpoint is left out" : "): retrying"),
         now);
}

void TeacherWatch::on_retry_after(const std::string& endpoint, Nanos asked, Instant now) {
    std::string text = endpoint + " asks for a pause of " + span_text(asked) + " (Retry-After)";
    if (asked > options_.max_hold) {
        text += "; limited to " + span_text(options_.max_hold) + " (/teacher/max_retry_after_secs)";
    }
    warn(Warning::hold, text, now);
}

void TeacherWatch::on_breaker_opened(const std::string& endpoint, Instant now) {
    warn(Warning::breaker, endpoint + ": circuit breaker open, probing it periodically", now);
}

void TeacherWatch::update(const TeacherNews& news, Instant now) {
    if (!emit_) {
        return;
    }
    const std::optional<Instant> silent_since = silence(news);
    const bool failing = news.failing_since.has_value();
    if (!failing && !(silent_since && now - *silent_since >= outage_timeout_of(news))) {
        if (said_at_) {
            emit_(WaitingEvent{"", "the teacher answers again, after " + span_text(now - began_), 0});
            lost_ += now - lost_from_;
            said_at_.reset();
        }
        return;
    }
    if (!said_at_ && failing && (!news.wanted_since || now - *news.failing_since < options_.grace)) {
        return;
    }
    const std::string text = failing ? failing_text()
                                     : "no answer from " + options_.asked + "; a request may take " +
                                           span_text(options_.deadline) + " (/teacher/timeout_secs)";
    if (said_at_ && (said_ == text || now - *said_at_ < options_.repeat)) {
        return;
    }
    if (!said_at_) {
        began_ = failing ? *news.failing_since : *silent_since;
        lost_from_ = std::max(began_, *news.wanted_since);
    }
    said_at_ = now;
    said_ = text;
    emit_(WaitingEvent{"teacher_unavailable", text, wall_clock_() - to_seconds(now - began_)});
}

void TeacherWatch::end() {
    if (std::exchange(said_at_, std::nullopt)) {
        emit_(WaitingEvent{});
    }
}

std::optional<Instant> TeacherWatch::next_wakeup(const TeacherNews& news, Instant now) const {
    if (!emit_) {
        return std::nullopt;
    }
    std::optional<Instant> at;
    if (!news.failing_since && !said_at_ && news.unanswered_since && !options_.asked.empty()) {
        at = silence(news).value_or(*news.unanswered_since) + outage_timeout_of(news);
    } else if (news.failing_since && !said_at_ && news.wanted_since) {
        at = *news.failing_since + options_.grace;
    } else if (said_at_ && news.failing_since && said_ != failing_text()) {
        at = *said_at_ + options_.repeat;
    }
    return at && *at > now ? at : std::nullopt;
}

std::optional<Instant> TeacherWatch::silence(const TeacherNews& news) const {
    const bool waits = news.unanswered_since && news.wanted_since && !options_.asked.empty();
    return waits ? std::optional(std::max(*news.unanswered_since, *news.wanted_since)) : std::nullopt;
}

Nanos TeacherWatch::outage_timeout_of(const TeacherNews& news) const {
    return std::max(options_.grace, 2 * news.usual);
}

std::string TeacherWatch::failing_text() const {
    return "no answer from the teacher; last: " + last_message_;
}

}  // namespace distilld

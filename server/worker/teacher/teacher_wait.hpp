#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "base/span_text.hpp"
#include "base/unix_time.hpp"
#include "server/worker/emit_event.hpp"

namespace distilld {

/// Reports one wait as events. `beginning` precedes the details of the wait, `ending` its duration. Not thread-safe:
/// call it on one executor.
class TeacherWait {
  public:
    TeacherWait(EmitEvent emit, std::string beginning, std::string ending)
        : emit_(std::move(emit)), beginning_(std::move(beginning)), ending_(std::move(ending)) {}

    void on_waiting(const std::string& text) {
        if (!waits_) {
            began_ = std::chrono::system_clock::now();
        }
        waits_ = true;
        emit_(WaitingEvent{"teacher_unavailable", beginning_ + text, unix_seconds(began_)});
    }
    /// `had`: the wait was successful.
    void end(bool had = true) {
        if (std::exchange(waits_, false)) {
            const std::chrono::nanoseconds waited = std::chrono::system_clock::now() - began_;
            emit_(WaitingEvent{"", had ? ending_ + ", after " + span_text(waited) : "", 0});
        }
    }

  private:
    EmitEvent emit_;
    std::string beginning_;
    std::string ending_;
    std::chrono::system_clock::time_point began_;
    bool waits_ = false;
};

}  // namespace distilld

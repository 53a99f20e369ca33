#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "base/unix_time.hpp"
#include "pipeline/core/worker_events.hpp"
#include "server/worker/preparation.hpp"

namespace distilld {

/// What the probe waits for, as events.
class TeacherWait {
  public:
    explicit TeacherWait(EmitEvent emit) : emit_(std::move(emit)) {}

    void on_waiting(const std::string& text) {
        waits_ = true;
        emit_(WaitingEvent{"teacher_unavailable", "no endpoint of the teacher is up yet; last: " + text,
                           unix_seconds(began_)});
    }
    void over() {
        if (std::exchange(waits_, false)) {
            emit_(WaitingEvent{});
        }
    }

  private:
    EmitEvent emit_;
    std::chrono::system_clock::time_point began_ = std::chrono::system_clock::now();
    bool waits_ = false;
};

}  // namespace distilld

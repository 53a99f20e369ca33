#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace distilld::http {

/// What a listener does about accepts that fail (out of descriptors): it waits longer from one to the next, and says so
/// once a minute. The time is given.
class AcceptTrouble {
  public:
    using Time = std::chrono::steady_clock::time_point;

    struct Verdict {
        std::chrono::milliseconds pause;
        std::string line;  ///< for the log; empty: it was said lately
    };

    [[nodiscard]] Verdict failed(const std::string& why, Time now);
    void accepted() { pause_ = kFirstPause; }

  private:
    static constexpr std::chrono::milliseconds kFirstPause{100};

    std::chrono::milliseconds pause_ = kFirstPause;
    Time quiet_until_ = Time::min();
    std::uint64_t unsaid_ = 0;
};

}  // namespace distilld::http

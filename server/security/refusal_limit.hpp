#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/support/rate_limit.hpp"

namespace distilld {

/// Limits the recording of refused requests, per address and in total, so that clients without a key cannot fill the
/// disk. Time is an argument. One thread.
class RefusalLimit {
  public:
    static constexpr double kAtOnce = 60;  ///< per address, and then one per second
    static constexpr double kAtOnceOfAll = 1000;
    static constexpr std::size_t kMaxAddresses = 1024;  ///< further addresses count as one

    /// nullopt: this request is omitted. Otherwise the number of omitted requests of its address since the last
    /// recorded one.
    std::optional<std::uint64_t> admit(const std::string& address, RateLimit::Time now);

    /// Removes addresses without recent requests, and returns how many of their requests were omitted.
    std::vector<std::pair<std::string, std::uint64_t>> forget_quiet(RateLimit::Time now);

  private:
    std::map<std::string, RateLimit> addresses_;
    RateLimit all_{kAtOnceOfAll, 20};
};

}  // namespace distilld

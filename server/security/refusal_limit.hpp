#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/support/rate_limit.hpp"

namespace distilld {

/// Which refused requests are written down: so many of an address, and so many of all. Whoever has no key must not be
/// able to fill a disk. Time is an argument. One thread.
class RefusalLimit {
  public:
    static constexpr double kAtOnce = 60;  ///< of an address, and one a second after it
    static constexpr double kAtOnceOfAll = 1000;
    static constexpr std::size_t kMaxAddresses = 1024;  ///< further ones count as one

    /// Nothing: this one is left out. Else how many of its address were since the last that was not.
    std::optional<std::uint64_t> admit(const std::string& address, RateLimit::Time now);

    /// Forgets the addresses that have been quiet for a while, and says of how many requests each nobody was told.
    std::vector<std::pair<std::string, std::uint64_t>> forget_quiet(RateLimit::Time now);

  private:
    std::map<std::string, RateLimit> addresses_;
    RateLimit all_{kAtOnceOfAll, 20};
};

}  // namespace distilld

#include "server/security/refusal_limit.hpp"

namespace distilld {

std::optional<std::uint64_t> RefusalLimit::admit(const std::string& address, RateLimit::Time now) {
    const bool known = addresses_.contains(address) || addresses_.size() < kMaxAddresses;
    RateLimit& own = addresses_.try_emplace(known ? address : "others", kAtOnce, 1).first->second;
    if (!own.take(1, now)) {
        return std::nullopt;
    }
    if (!all_.take(1, now)) {
        own.refuse();
        return std::nullopt;
    }
    return own.take_refused();
}

std::vector<std::pair<std::string, std::uint64_t>> RefusalLimit::forget_quiet(RateLimit::Time now) {
    std::vector<std::pair<std::string, std::uint64_t>> untold;
    for (auto place = addresses_.begin(); place != addresses_.end();) {
        auto& [address, limit] = *place;
        if (!limit.is_full(now)) {
            ++place;
            continue;
        }
        if (const std::uint64_t refused = limit.take_refused(); refused > 0) {
            untold.emplace_back(address, refused);
        }
        place = addresses_.erase(place);
    }
    return untold;
}

}  // namespace distilld

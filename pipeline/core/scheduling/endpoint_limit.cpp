#include "pipeline/core/scheduling/endpoint_limit.hpp"

#include <algorithm>

namespace distilld {

namespace {

constexpr double kFamiliarShare = 0.9;         // share of the last refused load that is reached quickly
constexpr double kCarefulStep = 0.25;          // per generation, above that share
constexpr std::uint32_t kForgetAnswers = 256;  // answers after which a server may have grown

}  // namespace

std::uint32_t EndpointLimit::or_ceiling(std::uint32_t ceiling) const noexcept {
    return limited_ ? std::min(limit(), ceiling) : ceiling;
}

void EndpointLimit::on_success(std::uint32_t in_flight, std::uint32_t ceiling) {
    if (!limited_) {
        return;
    }
    if (complaint_ != 0 && ++calm_ >= kForgetAnswers) {
        complaint_ = 0;
    }
    if (in_flight < limit()) {
        return;  // the limit was not reached, so nothing is known about a higher one
    }
    const bool familiar = complaint_ == 0 || limit_ + 1 <= kFamiliarShare * complaint_;
    limit_ += familiar ? 1 : kCarefulStep / limit_;
    if (limit() >= ceiling) {
        limited_ = false;
    }
}

bool EndpointLimit::on_overload(Instant issued, std::uint32_t in_flight, Instant now) {
    if (last_halving_ && issued <= *last_halving_) {
        return false;
    }
    last_halving_ = now;
    const std::uint32_t had = limited_ ? std::min(limit(), in_flight) : in_flight;
    complaint_ = had;
    calm_ = 0;
    limited_ = true;
    limit_ = std::max<std::uint32_t>(1, had / 2);
    return true;
}

void EndpointLimit::restart() noexcept {
    limited_ = true;
    limit_ = 1;
    complaint_ = 0;
}

}  // namespace distilld

#include "server/http/accept_trouble.hpp"

#include <algorithm>

namespace distilld::http {
namespace {

constexpr std::chrono::milliseconds kMaxPause{1600};
constexpr std::chrono::minutes kQuiet{1};

}  // namespace

AcceptTrouble::Verdict AcceptTrouble::failed(const std::string& why, Time now) {
    Verdict verdict{pause_, {}};
    pause_ = std::min(2 * pause_, kMaxPause);
    if (now < quiet_until_) {
        ++unsaid_;
        return verdict;
    }
    verdict.line = "accept: " + why;
    if (unsaid_ > 0) {
        verdict.line += " (" + std::to_string(unsaid_) + " more since this was last said)";
    }
    quiet_until_ = now + kQuiet;
    unsaid_ = 0;
    return verdict;
}

}  // namespace distilld::http

#include "pipeline/core/ranks/rank_watch.hpp"

#include <string_view>
#include <utility>

#include "base/ascii.hpp"

namespace distilld {

namespace {

constexpr std::string_view kLost = "lost ";

}  // namespace

RankWatch::RankWatch(std::uint32_t rank, std::uint32_t count, std::uint32_t max_silent_looks)
    : rank_(rank), count_(count), max_silent_looks_(max_silent_looks), heard_(count) {}

void RankWatch::suspect(std::uint32_t peer, const std::string& why) {
    if (!suspicion_) {
        suspicion_ = {peer, why, 0};
    }
}

std::optional<RankVerdict> RankWatch::look(const RankSigns& signs) {
    if (signs.verdict) {
        return read(*signs.verdict);
    }
    // Who says why it has ended comes before whoever is silent for that reason.
    for (std::uint32_t other = 0; other < count_; ++other) {
        const auto& end = signs.ends.at(other);
        if (other == rank_ || !end || *end == end_of_run()) {
            continue;
        }
        return end->starts_with(kLost) ? read(end->substr(kLost.size()))
                                       : RankVerdict{other, false, name_of(other) + " has " + *end};
    }
    for (std::uint32_t other = 0; other < count_; ++other) {
        if (other == rank_ || signs.ends.at(other)) {
            continue;
        }
        Heard& heard = heard_.at(other);
        const std::string& beat = signs.beats.at(other);
        heard.silent_looks = std::exchange(heard.beat, beat) == beat ? heard.silent_looks + 1 : 0;
        if (heard.silent_looks > max_silent_looks_) {
            return RankVerdict{other, false, name_of(other) + " is lost: nothing is heard of it"};
        }
    }
    if (rank_ != 0 && signs.ends.at(0)) {
        return RankVerdict{0, true, name_of(0) + " has ended the run"};
    }
    if (suspicion_ && suspicion_->looks++ > 0) {
        const auto& end = signs.ends.at(suspicion_->rank);
        return RankVerdict{suspicion_->rank, false,
                           name_of(suspicion_->rank) + (end ? " has left the run" : " is lost: " + suspicion_->why)};
    }
    return std::nullopt;
}

RankVerdict RankWatch::no_store(bool hosted, const std::string& why) const {
    return {0, false, (hosted ? "the launcher" : name_of(0)) + " is lost: its store does not answer: " + why};
}

std::string RankWatch::end_by_verdict(const RankVerdict& verdict) {
    return verdict.left ? end_of_run() : std::string(kLost) + write(verdict);
}

std::string RankWatch::write(const RankVerdict& verdict) {
    return std::to_string(verdict.rank) + " " + verdict.words;
}

RankVerdict RankWatch::read(const std::string& text) const {
    const std::size_t end = text.find(' ');
    const auto rank = number_from<std::uint32_t>(text.substr(0, end));
    if (end == std::string::npos || !rank || *rank >= count_) {
        return {0, false, "another rank is lost"};
    }
    return {*rank, false, text.substr(end + 1)};
}

}  // namespace distilld

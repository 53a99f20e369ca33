#include "pipeline/core/ranks/rank_figures.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace distilld {

namespace {

/// As it is sent.
struct PackedFigures {
    std::array<char, 64> host{};  ///< ends with a zero
    std::uint64_t tokens = 0;
    double wait_input_seconds = 0;
    double wait_ranks_seconds = 0;
    std::array<double, kStageNames.size()> busy_seconds{};  ///< by Stage
};
static_assert(std::is_trivially_copyable_v<PackedFigures> && sizeof(PackedFigures) == kRankFiguresSize);

double checked_seconds(double seconds) {
    return std::isfinite(seconds) && seconds > 0 ? seconds : 0;
}

char checked_of_host(char c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    return letter || c == '-' || c == '.' || c == '_' ? c : '?';
}

}  // namespace

std::string write_rank_figures(const RankCounters& figures) {
    PackedFigures packed;
    std::copy_n(figures.host.begin(), std::min(figures.host.size(), packed.host.size() - 1), packed.host.begin());
    packed.tokens = figures.tokens;
    packed.wait_input_seconds = figures.wait_input_seconds;
    packed.wait_ranks_seconds = figures.wait_ranks_seconds;
    for (std::size_t stage = 0; stage < kStageNames.size(); ++stage) {
        const auto found = figures.busy_seconds.find(std::string(kStageNames.at(stage)));
        packed.busy_seconds.at(stage) = found == figures.busy_seconds.end() ? 0 : found->second;
    }
    return {reinterpret_cast<const char*>(&packed), sizeof(packed)};
}

Result<RankCounters> read_rank_figures(const std::string& bytes) {
    PackedFigures packed;
    if (bytes.size() != sizeof(packed)) {
        return Error{ErrorKind::internal,
                     "another rank counts in another way: its figures have " + std::to_string(bytes.size()) + " bytes"};
    }
    std::memcpy(&packed, bytes.data(), sizeof(packed));
    RankCounters figures;
    figures.host.assign(packed.host.begin(), std::find(packed.host.begin(), packed.host.end(), '\0'));
    std::ranges::transform(figures.host, figures.host.begin(), checked_of_host);
    figures.tokens = packed.tokens;
    figures.wait_input_seconds = checked_seconds(packed.wait_input_seconds);
    figures.wait_ranks_seconds = checked_seconds(packed.wait_ranks_seconds);
    for (std::size_t stage = 0; stage < kStageNames.size(); ++stage) {
        if (const double busy = checked_seconds(packed.busy_seconds.at(stage)); busy > 0) {
            figures.busy_seconds[std::string(kStageNames.at(stage))] = busy;
        }
    }
    return figures;
}

}  // namespace distilld

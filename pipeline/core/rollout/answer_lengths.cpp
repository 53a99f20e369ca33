#include "pipeline/core/rollout/answer_lengths.hpp"

#include <algorithm>
#include <cstddef>

namespace distilld {

namespace {

std::size_t place_of_length(std::uint64_t tokens) {
    const auto* const bound =
        std::lower_bound(kAnswerLengthBounds.begin(), kAnswerLengthBounds.end(), static_cast<double>(tokens));
    return static_cast<std::size_t>(bound - kAnswerLengthBounds.begin());
}

}  // namespace

void count_length(std::vector<AnswersOfLength>& lengths, std::uint64_t tokens) {
    const std::size_t place = place_of_length(tokens);
    const std::uint64_t up_to =
        place < kAnswerLengthBounds.size() ? static_cast<std::uint64_t>(kAnswerLengthBounds[place]) : tokens;
    const auto found = std::ranges::lower_bound(lengths, up_to, {}, &AnswersOfLength::up_to);
    if (found != lengths.end() && found->up_to == up_to) {
        ++found->answers;
    } else {
        lengths.insert(found, {up_to, 1});
    }
}

std::vector<std::uint64_t> counts_by_bound(const std::vector<AnswersOfLength>& lengths) {
    std::vector<std::uint64_t> counts(kAnswerLengthBounds.size() + 1);
    for (const AnswersOfLength& one : lengths) {
        counts[place_of_length(one.up_to)] += one.answers;
    }
    return counts;
}

}  // namespace distilld

#include "models/serving/token_choice.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/random.hpp"
#include "models/serving/top_k.hpp"

namespace distilld::models {

namespace {

/// In [0, 1).
double random_number(const TokenChoice& choice, std::uint64_t position) {
    const std::uint64_t of_answer = SplitMix64(SplitMix64(choice.seed).next() + choice.answer).next();
    return SplitMix64(of_answer + position).uniform();
}

/// Of masses in this order, the first with which the sum exceeds the share `random` of all.
template <class Mass>
std::size_t drawn(std::size_t count, double random, const Mass& mass) {
    double all = 0;
    for (std::size_t i = 0; i < count; ++i) {
        all += mass(i);
    }
    double left = random * all;
    std::size_t last = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const double one = mass(i);
        last = one > 0 ? i : last;
        left -= one;
        if (left < 0) {
            return i;
        }
    }
    return last;  // rounding
}

}  // namespace

std::int32_t draw_token(std::span<const float> logprobs, const TokenChoice& choice, std::uint64_t position) {
    if (choice.temperature == 0) {
        return static_cast<std::int32_t>(std::ranges::max_element(logprobs) - logprobs.begin());
    }
    const double highest = *std::ranges::max_element(logprobs);
    const auto mass_of = [&](float logprob) { return std::exp((logprob - highest) / choice.temperature); };
    const double random = random_number(choice, position);
    const bool all_tokens = choice.top_k == 0 || choice.top_k >= logprobs.size();
    if (all_tokens && choice.top_p >= 1) {
        return static_cast<std::int32_t>(
            drawn(logprobs.size(), random, [&](std::size_t id) { return mass_of(logprobs[id]); }));
    }
    std::vector<TopEntry> best;
    select_top_k(logprobs, all_tokens ? static_cast<std::uint32_t>(logprobs.size()) : choice.top_k, best);
    std::vector<double> masses;
    double sum = 0;
    for (const TopEntry& entry : best) {
        masses.push_back(mass_of(entry.value));
        sum += masses.back();
    }
    double kept = 0;
    std::size_t count = 0;
    while (count < masses.size() && (count == 0 || kept < choice.top_p * sum)) {
        kept += masses[count++];
    }
    return static_cast<std::int32_t>(best[drawn(count, random, [&](std::size_t i) { return masses[i]; })].id);
}

}  // namespace distilld::models

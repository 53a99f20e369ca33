#pragma once

#include <cstdint>
#include <span>

namespace distilld::models {

/// How the tokens of an answer are drawn.
struct TokenChoice {
    double temperature = 1.0;  ///< divides the log-probabilities; 0: the likeliest token
    std::uint32_t top_k = 0;   ///< among the k likeliest only; 0: all
    double top_p = 1.0;        ///< among the likeliest that have this mass together only (arXiv 1904.09751)
    std::uint64_t seed = 0;
    std::uint32_t answer = 0;  ///< number among several to the same prompt
};

/// Draws token number `position` of an answer from finite log-probabilities [V]. A pure function of its arguments:
/// equal ones are ordered by token id, and the random number is a hash of seed, answer and position.
[[nodiscard]] std::int32_t draw_token(std::span<const float> logprobs, const TokenChoice& choice,
                                      std::uint64_t position);

}  // namespace distilld::models

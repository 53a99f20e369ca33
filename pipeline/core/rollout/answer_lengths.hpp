#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace distilld {

/// Upper bounds, in tokens, of the histogram of answers: up to the maximum of rollout.max_tokens.
inline constexpr std::array kAnswerLengthBounds{1.0,     2.0,     4.0,     8.0,     12.0,     16.0,    24.0,   32.0,
                                                48.0,    64.0,    96.0,    128.0,   192.0,    256.0,   384.0,  512.0,
                                                768.0,   1024.0,  1536.0,  2048.0,  3072.0,   4096.0,  6144.0, 8192.0,
                                                12288.0, 16384.0, 32768.0, 65536.0, 131072.0, 262144.0};

/// Answers of at most `up_to` tokens, a bound of kAnswerLengthBounds, and of more than the bound below it.
struct AnswersOfLength {
    std::uint64_t up_to = 0;
    std::uint64_t answers = 0;
};

/// Counts one answer of `tokens` in a list that ascends and has no empty entries.
void count_length(std::vector<AnswersOfLength>& lengths, std::uint64_t tokens);

/// One count per bound of kAnswerLengthBounds, and one above; not cumulative.
[[nodiscard]] std::vector<std::uint64_t> counts_by_bound(const std::vector<AnswersOfLength>& lengths);

}  // namespace distilld

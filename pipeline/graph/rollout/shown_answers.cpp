#include "pipeline/graph/rollout/shown_answers.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.hpp"
#include "base/utf8.hpp"

namespace distilld {

namespace {

constexpr std::uint64_t kShownPerDoubling = 8;
constexpr std::size_t kMaxShown = 2;
constexpr std::size_t kMaxShownBytes = 1000;
constexpr std::size_t kMaxShownIds = 1000;
constexpr const char* kCut = "…";

std::string text_of_ids(const std::vector<std::int32_t>& ids, const TextOfIds& text) {
    if (text) {
        try {
            return to_valid_utf8(text(ids));
        } catch (const ErrorException&) {  // the tokenizer gives these up; their ids are shown
        }
    }
    std::string listed;
    for (const std::int32_t id : ids) {
        listed += (listed.empty() ? "" : " ") + std::to_string(id);
    }
    return listed;
}

/// The last bytes of a text, from the start of a UTF-8 sequence on.
std::string_view end_of(std::string_view text, std::size_t max_bytes) {
    return text.size() <= max_bytes ? text : text.substr(cut_utf8(text, text.size() - max_bytes + 3).size());
}

std::string shown_prompt(const std::vector<std::int32_t>& ids, const TextOfIds& text) {
    const std::size_t left_out = ids.size() - std::min(ids.size(), kMaxShownIds);
    const std::string whole = text_of_ids({ids.begin() + static_cast<std::ptrdiff_t>(left_out), ids.end()}, text);
    const std::string_view shown = end_of(whole, kMaxShownBytes);
    return (left_out > 0 || shown.size() < whole.size() ? kCut : "") + std::string(shown);
}

std::string shown_answer(const std::vector<std::int32_t>& ids, const TextOfIds& text) {
    const std::size_t count = std::min(ids.size(), kMaxShownIds);
    const std::string whole = text_of_ids({ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count)}, text);
    const std::string_view shown = cut_utf8(whole, kMaxShownBytes);
    return std::string(shown) + (count < ids.size() || shown.size() < whole.size() ? kCut : "");
}

}  // namespace

bool shows_answers(std::uint64_t step) {
    return step % std::bit_floor(std::max<std::uint64_t>(1, step / kShownPerDoubling)) == 0;
}

RolloutEvent shown_answers(std::uint64_t step, const TokenBatch& prompts, const KeptAnswers& answers,
                           std::uint32_t max_tokens, const TextOfIds& text) {
    RolloutEvent event{step, answers.version, {}};
    for (std::size_t row = 0; event.samples.size() < kMaxShown && row < answers.answers.size(); ++row) {
        const Rollout& answer = answers.answers[row];
        if (answer.ids.empty()) {
            continue;  // a row of the dataset is in its place
        }
        const auto begin = prompts.input_ids.begin() + static_cast<std::ptrdiff_t>(row * prompts.columns);
        const std::vector<std::int32_t> prompt(begin, begin + prompts.lengths[row]);
        SampledAnswer shown;
        shown.prompt = shown_prompt(prompt, text);
        shown.text = shown_answer(answer.ids, text);
        shown.tokens = answer.ids.size();
        shown.cut = answer.ids.size() == max_tokens;
        const double sum = std::accumulate(answer.log_probabilities.begin(), answer.log_probabilities.end(), 0.0);
        shown.log_probability = sum / static_cast<double>(std::max<std::size_t>(1, answer.log_probabilities.size()));
        event.samples.push_back(std::move(shown));
    }
    return event;
}

}  // namespace distilld

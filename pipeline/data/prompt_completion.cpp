#include "pipeline/data/prompt_completion.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/core/micro_batch.hpp"

namespace distilld {

void encode_prompt_completion(const Tokenizer& tokenizer, std::string_view prompt, std::string_view completion,
                              bool completion_only, Document& document) {
    std::string whole;
    whole.reserve(prompt.size() + completion.size());
    whole.append(prompt).append(completion);
    document.ids = tokenizer.encode(whole);
    const std::optional<std::int32_t> end = tokenizer.end_of_text();
    if (end && (document.ids.empty() || document.ids.back() != *end)) {
        document.ids.push_back(*end);
    }
    document.has_labels = completion_only;
    if (!completion_only) {
        return;
    }
    const std::vector<std::int32_t> given = tokenizer.encode(prompt);
    const auto [differs, unused] = std::ranges::mismatch(document.ids, given);
    document.labels = document.ids;
    std::fill_n(document.labels.begin(), differs - document.ids.begin(), kIgnoredLabel);
}

}  // namespace distilld

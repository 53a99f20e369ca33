#include "pipeline/data/prompt_completion.hpp"

#include <algorithm>
#include <optional>

#include "pipeline/core/micro_batch.hpp"

namespace distilld {

std::vector<std::int32_t> ids_of_pair(const Tokenizer& tokenizer, std::string_view prompt,
                                      std::string_view completion) {
    std::string whole;
    whole.reserve(prompt.size() + completion.size());
    whole.append(prompt).append(completion);
    std::vector<std::int32_t> ids = tokenizer.encode(whole);
    const std::optional<std::int32_t> end = tokenizer.end_of_text();
    if (end && (ids.empty() || ids.back() != *end)) {
        ids.push_back(*end);
    }
    return ids;
}

void encode_prompt_completion(const Tokenizer& tokenizer, std::string_view prompt, std::string_view completion,
                              bool completion_only, Document& document) {
    document.ids = ids_of_pair(tokenizer, prompt, completion);
    document.has_labels = completion_only;
    if (!completion_only) {
        return;
    }
    const std::vector<std::int32_t> given = tokenizer.encode(prompt);
    const auto [differs, unused] = std::ranges::mismatch(document.ids, given);
    document.labels = document.ids;
    std::fill_n(document.labels.begin(), differs - document.ids.begin(), kIgnoredLabel);
}

std::string alpaca_prompt(std::string_view instruction, std::string_view input) {
    std::string prompt = "Below is an instruction that describes a task";
    if (!input.empty()) {
        prompt += ", paired with an input that provides further context";
    }
    prompt += ". Write a response that appropriately completes the request.\n\n### Instruction:\n";
    prompt += instruction;
    if (!input.empty()) {
        prompt += "\n\n### Input:\n";
        prompt += input;
    }
    return prompt + "\n\n### Response:\n";
}

}  // namespace distilld

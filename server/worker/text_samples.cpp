#include "server/worker/text_samples.hpp"

#include <algorithm>
#include <utility>

#include "base/utf8.hpp"

namespace distilld {
namespace {

struct Prompt {
    std::string text;
    std::vector<std::int32_t> ids;
};

/// SplitMix64 (Steele et al. 2014), so that neighbouring steps draw different numbers.
std::uint64_t mixed(std::uint64_t number) {
    number += 0x9E3779B97F4A7C15ULL;
    number = (number ^ (number >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    number = (number ^ (number >> 27U)) * 0x94D049BB133111EBULL;
    return number ^ (number >> 31U);
}

}  // namespace

Result<TextSamples> make_text_samples(const JobSpec& spec, const std::shared_ptr<const Tokenizer>& tokenizer,
                                      const std::string& refusal, std::uint32_t vocabulary_size) {
    const EvalSpec& eval = spec.eval;
    if (eval.sample_prompts.empty()) {
        return TextSamples();
    }
    if (!tokenizer) {
        return invalid_input("/eval/sample_prompts: there is no tokenizer to read them with: " + refusal);
    }
    std::vector<Prompt> prompts;
    for (const std::string& text : eval.sample_prompts) {
        Prompt prompt{text, tokenizer->encode(text)};
        // Some tokenizers append an end of text, after which nothing can follow.
        if (prompt.ids.size() > 1 && prompt.ids.back() == tokenizer->end_of_text()) {
            prompt.ids.pop_back();
        }
        const std::string pointer = "/eval/sample_prompts/" + std::to_string(prompts.size());
        if (prompt.ids.empty()) {
            return invalid_input(pointer + ": the tokenizer makes no token of it");
        }
        const std::int32_t largest = *std::ranges::max_element(prompt.ids);
        if (largest < 0 || static_cast<std::uint32_t>(largest) >= vocabulary_size) {
            return invalid_input(pointer + ": has token " + std::to_string(largest) +
                                 ", outside the student's vocabulary of " + std::to_string(vocabulary_size));
        }
        prompts.push_back(std::move(prompt));
    }
    return TextSamples([tokenizer, prompts = std::move(prompts), eval, seed = spec.training.seed](Student& student,
                                                                                                  std::uint64_t step) {
        std::vector<SampledText> samples;
        for (const Prompt& prompt : prompts) {
            SampleOptions options;
            options.max_tokens = eval.sample_tokens;
            options.temperature = eval.sample_temperature;
            options.seed = mixed(mixed(seed + samples.size()) + step);
            options.end = tokenizer->end_of_text();
            samples.push_back({prompt.text, to_valid_utf8(tokenizer->decode(student.sample(prompt.ids, options)))});
        }
        return samples;
    });
}

}  // namespace distilld

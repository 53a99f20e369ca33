#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/data/jsonl_document.hpp"

namespace distilld {

/// The ids of both texts as one, then end_of_text unless they end with it.
[[nodiscard]] std::vector<std::int32_t> ids_of_pair(const Tokenizer& tokenizer, std::string_view prompt,
                                                    std::string_view completion);

/// Fills ids, labels and has_labels of `document` from a prompt and its completion, as TRL's SFT trainer does: the ids
/// of both texts as one, then end_of_text unless they end with it. `completion_only`: tokens that the prompt has on its
/// own, too, get the label kIgnoredLabel. TRL counts the prompt's tokens instead, and warns if the two differ because a
/// token spans the end of the prompt and the completion (" wo" of "hello " and "world"). Here, such a token carries
/// loss.
void encode_prompt_completion(const Tokenizer& tokenizer, std::string_view prompt, std::string_view completion,
                              bool completion_only, Document& document);

/// The prompt of an instruction and its input, which may be empty: PROMPT_DICT in train.py of tatsu-lab/stanford_alpaca
/// with a line break at its end, as in the column "text" of the data set tatsu-lab/alpaca.
[[nodiscard]] std::string alpaca_prompt(std::string_view instruction, std::string_view input);

}  // namespace distilld

#pragma once

#include <string_view>

#include "pipeline/data/jsonl_document.hpp"
#include "pipeline/data/tokenizer/tokenizer.hpp"

namespace distilld {

/// Fills ids, labels and has_labels of `document` with a prompt and what is to be said to it, as TRL's SFT trainer
/// makes them: the ids of both texts as one, behind them end_of_text unless they end with it already.
/// `completion_only`: the tokens that the prompt alone begins with as well have the label kIgnoredLabel. TRL counts the
/// tokens of the prompt instead and warns where the two differ, which is where a token reaches from the prompt into the
/// completion (" wo" of "hello " and "world"); here such a token carries loss, as it holds letters that are to be
/// learnt.
void encode_prompt_completion(const Tokenizer& tokenizer, std::string_view prompt, std::string_view completion,
                              bool completion_only, Document& document);

}  // namespace distilld

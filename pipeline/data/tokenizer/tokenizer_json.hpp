#pragma once

#include <boost/json/value.hpp>
#include <memory>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "pipeline/data/tokenizer/tokenizer.hpp"

namespace distilld {

/// The tokenizer that a tokenizer.json describes (huggingface/tokenizers, whose ids it gives): added tokens, then
/// normalizer, pre-tokenizer, a model of type BPE, post-processor, decoder. `end_of_text` is the token that ends a
/// document, as tokenizer_config.json names it; nothing: <|endoftext|> where there is one. A component that is not
/// understood is refused by name.
Result<std::unique_ptr<Tokenizer>> make_json_tokenizer(const boost::json::value& content,
                                                       const std::optional<std::int32_t>& end_of_text);

}  // namespace distilld

#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>

#include "pipeline/core/tokenizer_signs.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld {

/// What vLLM and SGLang make of kTokenizerText: POST {"model", "prompt", "add_special_tokens"} to `target`, answered
/// {"tokens": […]}. Signs without ids where there is no such page, or what it answers is none of that. A failure for
/// which is_outage() holds means that the server did not come up.
boost::asio::awaitable<FetchResult<TokenizerSigns>> ask_to_tokenize(ProbeDialogue& dialogue, std::string target,
                                                                    std::string model);

}  // namespace distilld

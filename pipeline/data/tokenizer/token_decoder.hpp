#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// Turns tokens, as the vocabulary has them, into pieces of text. Joined, the pieces are the text, which is at most
/// `max_bytes` long, see check_grown_bytes(). Immutable, any thread.
using TokenDecoder = std::function<void(std::vector<std::string>& tokens, std::size_t max_bytes)>;

/// "decoder" of a tokenizer.json: Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace. Others are
/// refused by name.
Result<TokenDecoder> make_token_decoder(const boost::json::value& component);

}  // namespace distilld

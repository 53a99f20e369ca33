#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// Makes text of tokens as the vocabulary writes them. Immutable, any thread.
class TokenDecoder {
  public:
    virtual ~TokenDecoder() = default;
    /// The text is what the tokens are joined to; it becomes no longer than `max_bytes`, see check_grown_bytes().
    virtual void apply(std::vector<std::string>& tokens, std::size_t max_bytes) const = 0;
};

/// "decoder" of a tokenizer.json: Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace. Another one is
/// refused by name.
Result<std::unique_ptr<TokenDecoder>> make_token_decoder(const boost::json::value& component);

}  // namespace distilld

#pragma once

#include <boost/json/value.hpp>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// Makes text of tokens as the vocabulary writes them. Immutable, any thread.
class TokenDecoder {
  public:
    virtual ~TokenDecoder() = default;
    /// The text is what the tokens are joined to.
    virtual void apply(std::vector<std::string>& tokens) const = 0;
};

/// "decoder" of a tokenizer.json: Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace. Another one is
/// refused by name.
Result<std::unique_ptr<TokenDecoder>> make_token_decoder(const boost::json::value& component);

}  // namespace distilld

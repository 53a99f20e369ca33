#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/tokenizer/normalizer.hpp"
#include "pipeline/data/tokenizer/text_span.hpp"

namespace distilld {

/// A token that is found in the text as it stands, before any word is.
struct AddedToken {
    std::string content;
    std::int32_t id = 0;
    bool special = false;
    bool single_word = false;  ///< only where no word goes on before or after it
    bool takes_left = false;   ///< with the white space before it (lstrip)
    bool takes_right = false;  ///< with the white space behind it (rstrip)
    bool normalized = false;   ///< looked for in normalized text, in its own normalized form
};

/// A piece of a text: a token's, or text between.
struct AddedTokenPiece {
    TextSpan span;
    std::optional<std::int32_t> id;
};

/// Finds added tokens: from left to right, the longest of those that begin at a place. Immutable, any thread.
class AddedTokenFinder {
  public:
    virtual ~AddedTokenFinder() = default;
    /// All of `text`, in order; text between tokens is not empty. `pieces` is emptied first.
    virtual void split(std::string_view text, std::vector<AddedTokenPiece>& pieces) const = 0;
};

/// "added_tokens" of a tokenizer.json.
Result<std::vector<AddedToken>> read_added_tokens(const boost::json::value& listed);

/// Of the tokens whose `normalized` is this. `normalizer` may be null.
std::unique_ptr<AddedTokenFinder> make_added_token_finder(const std::vector<AddedToken>& tokens, bool normalized,
                                                          const Normalizer* normalizer);

}  // namespace distilld

#pragma once

#include <array>
#include <boost/json/value.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/tokenizer/normalizer.hpp"
#include "pipeline/data/tokenizer/pattern.hpp"

namespace distilld {

/// A token that is searched for in the raw text, before the text is split into words.
struct AddedToken {
    std::string content;
    std::int32_t id = 0;
    bool special = false;
    bool single_word = false;  ///< only without a word character next to it
    bool takes_left = false;   ///< includes the white space before it (lstrip)
    bool takes_right = false;  ///< includes the white space after it (rstrip)
    bool normalized = false;   ///< searched for in normalized text, in its own normalized form
};

/// A piece of a text: an added token, or text between tokens.
struct AddedTokenPiece {
    TextSpan span;
    std::optional<std::int32_t> id;
};

/// Finds added tokens from left to right, the longest at each place. Immutable, any thread.
class AddedTokenFinder {
  public:
    /// Finds the tokens that have this value of `normalized`. `normalizer` may be empty.
    AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized, const Normalizer& normalizer);

    /// Splits all of `text`, in order; text between tokens is not empty. `pieces` is cleared first.
    void split(std::string_view text, std::vector<AddedTokenPiece>& pieces) const;

  private:
    void insert(std::string_view content, std::int32_t number);
    [[nodiscard]] std::pair<std::int32_t, std::size_t> longest(std::string_view text) const;
    [[nodiscard]] bool stands_alone(std::string_view text, TextSpan found) const;
    [[nodiscard]] TextSpan with_white_space(std::string_view text, TextSpan found, const AddedToken& token,
                                            std::size_t done) const;

    std::vector<AddedToken> tokens_;
    std::shared_ptr<const Pattern> word_;
    std::shared_ptr<const Pattern> space_;
    std::array<bool, 256> begins_{};
    std::vector<std::int32_t> token_of_node_;
    boost::unordered_flat_map<std::uint64_t, std::uint32_t> edges_;
};

/// "added_tokens" of a tokenizer.json.
Result<std::vector<AddedToken>> read_added_tokens(const boost::json::value& listed);

}  // namespace distilld

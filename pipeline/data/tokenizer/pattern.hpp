#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/tokenizer/text_span.hpp"

namespace distilld {

/// What a component of a tokenizer.json looks for in text. Immutable, any thread.
class Pattern {
  public:
    virtual ~Pattern() = default;
    /// The matches in `text` (UTF-8), from left to right, none overlapping another; one may be empty. `matches` is
    /// emptied first. Throws ErrorException (invalid_input) where a regular expression takes too many steps.
    virtual void find_all(std::string_view text, std::vector<TextSpan>& matches) const = 0;
};

/// A regular expression in the dialect of Oniguruma (Ruby's), in which those of tokenizer.json are written, carried out
/// by PCRE2. What the two read differently is translated (\s, \w, \h); what cannot be is refused by name.
Result<std::shared_ptr<const Pattern>> make_regex(std::string_view expression);

/// These very bytes. `literal` is not empty.
std::shared_ptr<const Pattern> make_literal(std::string literal);

/// The text with `content` in place of each match; see check_grown_bytes().
[[nodiscard]] std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content,
                                      std::size_t max_bytes);

}  // namespace distilld

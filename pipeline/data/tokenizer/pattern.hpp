#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// Bytes [begin, end) of a text.
struct TextSpan {
    std::size_t begin = 0;
    std::size_t end = 0;

    [[nodiscard]] bool empty() const noexcept { return begin == end; }
    [[nodiscard]] std::string_view of(std::string_view text) const noexcept { return text.substr(begin, end - begin); }

    friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

/// Maximum size of a text of this many bytes after the steps of a tokenizer.json. Tokenizers in use stay far below: a
/// space becomes three bytes, and a normal form makes a character at most eleven times as long.
[[nodiscard]] constexpr std::size_t max_grown_bytes(std::size_t given) {
    constexpr std::size_t kTimes = 16;
    constexpr std::size_t kSlack = 1024;
    return kTimes * given + kSlack;
}

/// Throws ErrorException (invalid_input) if a step would make a text too long. Call it before allocating the memory.
inline void check_grown_bytes(std::uint64_t bytes, std::size_t max_bytes) {
    if (bytes > max_bytes) {
        throw ErrorException(invalid_input("the tokenizer's tokenizer.json makes a text longer than " +
                                           std::to_string(max_bytes) +
                                           " bytes from a far shorter one: its normalizer, pre_tokenizer or "
                                           "decoder replaces too much"));
    }
}

/// A pattern that a component of a tokenizer.json searches for. Immutable, any thread.
class Pattern {
  public:
    virtual ~Pattern() = default;
    /// Finds the matches in `text` (UTF-8) from left to right, without overlaps; one may be empty. `matches` is cleared
    /// first. Throws ErrorException (invalid_input) if a regular expression takes too many steps.
    virtual void find_all(std::string_view text, std::vector<TextSpan>& matches) const = 0;
};

/// A regular expression in the dialect of Oniguruma (Ruby's), which tokenizer.json uses, executed by PCRE2. Differences
/// between the two (\s, \w, \h) are translated; parts without a counterpart are refused by name.
Result<std::shared_ptr<const Pattern>> make_regex(std::string_view expression);

/// Matches exactly these bytes. `literal` is not empty.
std::shared_ptr<const Pattern> make_literal(std::string literal);

/// Replaces each match by `content`; see check_grown_bytes().
[[nodiscard]] std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content,
                                      std::size_t max_bytes);

}  // namespace distilld

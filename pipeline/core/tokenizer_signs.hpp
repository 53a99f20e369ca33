#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace distilld {

/// A text to compare two tokenizers by their ids for it, if one of them has no hash. It has several scripts, digits,
/// white space and code, but no special tokens.
inline constexpr std::string_view kTokenizerText =
    "The 3 quick brown foxes, in 2024: 1234567890 = 3.14159?  Größe, Übergrößenträger, çà et là.\n"
    "\tfor (int i = 0; i < n; ++i) { total += values[i] * 0x1F; }\n"
    "Съешь же ещё этих мягких булок. 你好，世界。 こんにちは 안녕하세요 שלום مرحبا नमस्ते 🙂🚀\n\n";

/// Identifies a tokenizer, as far as known.
struct TokenizerSigns {
    /// Hash of the pairs of id and token (pipeline/data/tokenizer/tokenizer_hash.hpp); empty = unknown.
    std::string hash;
    /// Ids of kTokenizerText; empty = unknown.
    std::vector<std::int32_t> ids;
    /// How many of `ids` the tokenizer adds around every text.
    std::size_t frame = 0;
    std::uint32_t size = 0;  ///< one above its largest id; 0 = unknown
    std::string name;        ///< its source, for users; empty: none
};

enum class TokenizersAre { same, different, not_compared };

/// Compares the hashes if both are known, otherwise the ids of the text, ignoring ids around a text.
[[nodiscard]] TokenizersAre compare(const TokenizerSigns& a, const TokenizerSigns& b);

}  // namespace distilld

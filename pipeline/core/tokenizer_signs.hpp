#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace distilld {

/// What two tokenizers are compared by where no hash of one of them is known: the ids that they make of it. Several
/// scripts, digits, white space and code, and nothing that is a special token.
inline constexpr std::string_view kTokenizerText =
    "The 3 quick brown foxes, in 2024: 1234567890 = 3.14159?  Größe, Übergrößenträger, çà et là.\n"
    "\tfor (int i = 0; i < n; ++i) { total += values[i] * 0x1F; }\n"
    "Съешь же ещё этих мягких булок. 你好，世界。 こんにちは 안녕하세요 שלום مرحبا नमस्ते 🙂🚀\n\n";

/// What is known of a tokenizer.
struct TokenizerSigns {
    /// Of which id stands for which token (pipeline/data/tokenizer/tokenizer_hash.hpp); empty = not known.
    std::string hash;
    /// Of kTokenizerText; empty = not known.
    std::vector<std::int32_t> ids;
    /// How many of those `ids` are what the tokenizer puts around every text.
    std::size_t frame = 0;
    std::uint32_t size = 0;  ///< one above its largest id; 0 = not known
    std::string name;        ///< for people: where it is from; empty: there is none
};

enum class TokenizersAre { same, different, not_compared };

/// By the hashes where both are known. Else by the ids of the text: what one puts around a text is no difference.
[[nodiscard]] TokenizersAre compare(const TokenizerSigns& a, const TokenizerSigns& b);

}  // namespace distilld

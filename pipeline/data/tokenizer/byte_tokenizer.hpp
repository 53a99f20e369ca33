#pragma once

#include <array>
#include <boost/json/fwd.hpp>
#include <cstdint>
#include <string>
#include <string_view>

namespace distilld {

inline constexpr std::int32_t kByteEndOfText = 256;
inline constexpr std::uint32_t kByteVocabularySize = 257;
inline constexpr std::string_view kByteEndOfTextToken = "<|endoftext|>";

/// GPT-2's printable stand-in for each byte, as UTF-8 (openai/gpt-2, encoder.py, bytes_to_unicode): 33–126, 161–172
/// and 174–255 stand for themselves, the other bytes for U+0100 and up in order. The vocabulary of a byte-level
/// tokenizer.json is written in these characters.
[[nodiscard]] std::array<std::string, 256> byte_level_alphabet();

/// The byte tokenizer's tokenizer.json.
[[nodiscard]] boost::json::value byte_tokenizer_json();

}  // namespace distilld

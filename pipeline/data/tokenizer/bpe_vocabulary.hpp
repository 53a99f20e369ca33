#pragma once

#include <array>
#include <boost/json/value.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

/// The data of a model of type BPE.
namespace distilld {

inline constexpr std::int32_t kNoToken = -1;
inline constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();

struct BpeMerge {
    std::uint32_t rank = kNoRank;  ///< the lowest goes first
    std::int32_t joined = kNoToken;
};

/// Views point into `tokens` and `bytes`, which must not change once filled.
struct BpeVocabulary {
    std::vector<std::string> tokens;  ///< [id] as written; empty: no token
    std::vector<std::string> bytes;   ///< [id] the text that it stands for, if written differently
    boost::unordered_flat_map<std::string_view, std::int32_t> ids;    ///< of tokens
    boost::unordered_flat_map<std::string_view, std::int32_t> texts;  ///< of the texts that they stand for
    boost::unordered_flat_map<std::uint64_t, BpeMerge> merges;        ///< by pair_of()
    std::array<std::int32_t, 256> of_byte{};                          ///< byte-level: the token of one byte
    std::array<std::int32_t, 256> fallback{};                         ///< "<0x00>" …
    bool byte_level = false;
    bool has_fallback = false;
    bool ignore_merges = false;
    bool fuse_unknown = false;
    std::int32_t unknown = kNoToken;

    [[nodiscard]] static std::uint64_t pair_of(std::int32_t left, std::int32_t right) noexcept {
        return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32U) | static_cast<std::uint32_t>(right);
    }
};

/// "model" of a tokenizer.json. `byte_level`: the vocabulary is written in the byte-level alphabet, one character per
/// byte.
Result<std::unique_ptr<const BpeVocabulary>> read_bpe_vocabulary(const boost::json::value& model, bool byte_level);

}  // namespace distilld

#pragma once

#include <array>
#include <cstdint>

#include "base/enum_names.hpp"

namespace distilld {

/// What a store keeps of a position's distribution. The exact bytes: docs/store.md.
enum class StoreFormat {
    full,     ///< logits of the whole vocabulary
    topk,     ///< the k most probable: i32 ids, log-probabilities, tail. Read by copying
    packed,   ///< the same with ids of ceil(log2 V) bits
    topp,     ///< as packed, of a position only as many as reach the probability p together, at most k
    sampled,  ///< draws from the whole distribution: unbiased, unlike the k most probable
};

inline constexpr std::array kStoreFormatNames{
    EnumName<StoreFormat>{"full", StoreFormat::full},       EnumName<StoreFormat>{"topk", StoreFormat::topk},
    EnumName<StoreFormat>{"packed", StoreFormat::packed},   EnumName<StoreFormat>{"topp", StoreFormat::topp},
    EnumName<StoreFormat>{"sampled", StoreFormat::sampled},
};

constexpr const auto& enum_names(StoreFormat) {
    return kStoreFormatNames;
}

/// How logits or log-probabilities are kept.
enum class StoreValues {
    f16,
    f32,  ///< full and topk only: what a teacher that answers f32 said, bit by bit
    u8,   ///< packed and topp only: steps of 1/255 of the range from a position's first to its last entry
};

inline constexpr std::array kStoreValuesNames{
    EnumName<StoreValues>{"f16", StoreValues::f16},
    EnumName<StoreValues>{"f32", StoreValues::f32},
    EnumName<StoreValues>{"u8", StoreValues::u8},
};

constexpr const auto& enum_names(StoreValues) {
    return kStoreValuesNames;
}

/// Bits of a packed token id: ceil(log2 vocabulary), at least 1.
[[nodiscard]] constexpr std::uint32_t id_bits(std::uint64_t vocabulary) noexcept {
    std::uint32_t bits = 1;
    while (bits < 32 && (std::uint64_t{1} << bits) < vocabulary) {
        ++bits;
    }
    return bits;
}

}  // namespace distilld

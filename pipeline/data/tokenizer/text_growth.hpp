#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"

namespace distilld {

/// What a text of so many bytes may become on its way through a tokenizer.json. Of those in use none comes near it: a
/// space becomes three bytes, and no character more than eleven times its own in a normal form.
[[nodiscard]] constexpr std::size_t max_grown_bytes(std::size_t given) {
    constexpr std::size_t kTimes = 16;
    constexpr std::size_t kSlack = 1024;
    return kTimes * given + kSlack;
}

/// Throws ErrorException (invalid_input) where a step would make more of a text than it may become. Before the memory
/// is allocated.
inline void check_grown_bytes(std::uint64_t bytes, std::size_t max_bytes) {
    if (bytes > max_bytes) {
        throw ErrorException(invalid_input("the tokenizer's tokenizer.json makes a text longer than " +
                                           std::to_string(max_bytes) +
                                           " bytes of one that is far shorter: its normalizer, pre_tokenizer or "
                                           "decoder replaces too much"));
    }
}

}  // namespace distilld

#include "pipeline/core/tokenizer_signs.hpp"

#include <algorithm>

namespace distilld {

TokenizersAre compare(const TokenizerSigns& a, const TokenizerSigns& b) {
    if (!a.hash.empty() && !b.hash.empty()) {
        return a.hash == b.hash ? TokenizersAre::same : TokenizersAre::different;
    }
    if (a.ids.size() <= a.frame || b.ids.size() <= b.frame) {
        return TokenizersAre::not_compared;
    }
    // The place of the frame in the ids is unknown, but without the frame, the text's own ids follow each other.
    const bool a_is_longer = a.ids.size() - a.frame == b.ids.size() - b.frame && a.frame > b.frame;
    const TokenizerSigns& framed = a_is_longer ? a : b;
    const TokenizerSigns& plain = a_is_longer ? b : a;
    if (framed.ids.size() - framed.frame != plain.ids.size() - plain.frame) {
        return TokenizersAre::different;
    }
    const auto found = std::search(framed.ids.begin(), framed.ids.end(), plain.ids.begin(), plain.ids.end());
    return found != framed.ids.end() ? TokenizersAre::same : TokenizersAre::different;
}

}  // namespace distilld

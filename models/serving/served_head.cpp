#include "models/serving/served_head.hpp"

#include <algorithm>

namespace distilld::models {

std::string ServedHead::piece(std::uint64_t first, std::uint64_t count) const {
    const std::uint64_t begin = std::min(first, file_bytes());
    const std::uint64_t end = begin + std::min(count, file_bytes() - begin);
    std::string bytes;
    bytes.reserve(end - begin);
    if (begin < prefix.size()) {
        bytes.append(prefix, begin, end - begin);  // append() stops at the end of the prefix
    }
    const std::uint64_t from = begin + bytes.size();
    if (from < end) {
        bytes.append(reinterpret_cast<const char*>(values.data()) + (from - prefix.size()), end - from);
    }
    return bytes;
}

}  // namespace distilld::models

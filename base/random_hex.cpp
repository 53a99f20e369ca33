#include "base/random_hex.hpp"

#include <random>

#include "base/hex.hpp"

namespace distilld {

std::string random_hex(std::size_t words) {
    std::random_device source;
    std::string text;
    for (std::size_t i = 0; i < words; ++i) {
        text += hex(source());
    }
    return text;
}

}  // namespace distilld

#pragma once

#include <chrono>

namespace distilld::bench {

/// Wall time of one call.
template <class Work>
double seconds_of(const Work& work) {
    const auto began = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace distilld::bench

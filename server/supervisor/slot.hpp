#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace distilld {

/// A place for one running job, and its share of the machine.
struct Slot {
    std::uint32_t number = 0;          ///< from 0
    std::vector<std::uint32_t> cores;  ///< ascending; empty = all that the service may use
    std::string device;                ///< as CUDA_VISIBLE_DEVICES names it; empty = all that the service may use
};

}  // namespace distilld

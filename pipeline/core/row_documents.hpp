#pragma once

#include <tuple>

#include "pipeline/core/micro_batch.hpp"

namespace distilld {

/// An order of a micro-batch's documents that groups equal lengths.
[[nodiscard]] inline bool longest_first(const RowDocument& a, const RowDocument& b) noexcept {
    return std::tuple(b.length, a.row, a.begin) < std::tuple(a.length, b.row, b.begin);
}

}  // namespace distilld

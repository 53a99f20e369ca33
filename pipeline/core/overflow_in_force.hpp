#pragma once

#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// What becomes of documents that are longer than a row: what the spec says or, where it does not, what its packing
/// does.
[[nodiscard]] constexpr Overflow overflow_in_force(const DatasetSpec& spec) noexcept {
    if (spec.overflow != Overflow::automatic) {
        return spec.overflow;
    }
    return spec.packing == Packing::documents ? Overflow::split : Overflow::truncate;
}

}  // namespace distilld

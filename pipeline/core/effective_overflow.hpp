#pragma once

#include "pipeline/core/spec_sections.hpp"

namespace distilld {

/// What happens to documents longer than a row: the spec's choice, or the default of its packing.
[[nodiscard]] constexpr Overflow effective_overflow(const DatasetSpec& spec) noexcept {
    if (spec.overflow != Overflow::automatic) {
        return spec.overflow;
    }
    return spec.packing == Packing::documents ? Overflow::split : Overflow::truncate;
}

}  // namespace distilld

#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "base/time.hpp"

namespace distilld {

/// A span for people, in whole seconds, rounded up: "21 s".
[[nodiscard]] inline std::string span_text(Nanos span) {
    return std::to_string(static_cast<std::int64_t>(std::ceil(to_seconds(span)))) + " s";
}

}  // namespace distilld

#pragma once

#include <span>

#include "server/sinks/sink.hpp"
#include "server/sinks/sink_runner.hpp"

namespace distilld::sinks {

/// Which records a sink is given; every sink gets the run's start and end.
enum class Takes { figures, spans };

/// One kind of sink.
struct SinkRow {
    const char* name;  ///< in messages and as a metric's label
    Takes takes;
    SinkPace pace;
    SinkFactory make;
};

/// All of them, in the order in which they are opened. To add one: a file, and a row in registry.cpp.
[[nodiscard]] std::span<const SinkRow> sink_rows();

}  // namespace distilld::sinks

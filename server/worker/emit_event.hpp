#pragma once

#include <functional>

#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// Takes the events of the run; any thread.
using EmitEvent = std::function<void(const WorkerEvent&)>;

}  // namespace distilld

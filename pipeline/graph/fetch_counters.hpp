#pragma once

#include "pipeline/core/endpoint_tally.hpp"
#include "pipeline/core/prefetch_scheduler.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// How the teacher side stands: what the scheduler has counted, each endpoint's figures, bytes, the store. `source` is
/// null in plain training.
[[nodiscard]] FetchCounters fetch_counters(const PrefetchScheduler& scheduler, const EndpointTally& tally,
                                           const TeacherSource* source);

/// What holds for requests now.
[[nodiscard]] ConcurrencyLimits concurrency_limits(const PrefetchScheduler& scheduler);

}  // namespace distilld

#pragma once

#include <string>

#include "base/time.hpp"
#include "pipeline/core/scheduling/endpoint_tally.hpp"
#include "pipeline/core/scheduling/prefetch_scheduler.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// The state of the teacher side: the scheduler's counts, each endpoint's figures, bytes, the store. `source` is null
/// in plain training.
[[nodiscard]] FetchCounters fetch_counters(const PrefetchScheduler& scheduler, const EndpointTally& tally,
                                           const TeacherSource* source);

/// What a named teacher reports of its own; `waited`: how long the student has waited for it.
[[nodiscard]] TeacherCounters teacher_counters(const std::string& teacher, const FetchCounters& fetch, Nanos waited);

/// Adds the counts of one more teacher, as FetchCounters describes; `first`: nothing was added before.
void add(FetchCounters& sum, FetchCounters one, bool first);

/// The limits that apply to requests now.
[[nodiscard]] ConcurrencyLimits concurrency_limits(const PrefetchScheduler& scheduler);

}  // namespace distilld

#pragma once

#include <cstdint>

#include "bench/scenario.hpp"
#include "pipeline/graph/student.hpp"
#include "pipeline/graph/training_graph.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld::bench {

struct PipelineRun {
    Nanos wall = 0;  ///< from the start of the graph to the end of its last step
    GraphOutcome outcome;
    std::uint32_t threads = 0;  ///< of the process while it ran
};

/// One run of the stage graph over NumberedDataset rows. `teacher_url` empty: the answers are at hand (fetched once
/// from `preload_url` before the clock starts), so that nothing is left of the teacher but the targets.
PipelineRun run_graph(const PipelineOptions& options, Student& student, const std::string& teacher_url,
                      const std::string& preload_url, bool parallel, std::uint64_t steps);

/// Largest resident size of this process so far, in bytes.
std::uint64_t peak_resident_bytes();

}  // namespace distilld::bench

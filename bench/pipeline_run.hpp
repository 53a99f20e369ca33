#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>

#include "bench/loopback_teacher.hpp"
#include "bench/scenario.hpp"
#include "pipeline/graph/student.hpp"
#include "pipeline/graph/training_graph.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld::bench {

struct PipelineRun {
    Nanos wall{0};  ///< from the start of the graph to the end of its last step
    Nanos fill{0};  ///< of it, the wait for the first micro-batch
    GraphOutcome outcome;
    std::uint32_t threads = 0;  ///< of the process while it ran
};

/// The far teacher of `count` micro-batches that the scenario describes.
LoopbackTeacherOptions loopback_options(const PipelineOptions& options, std::uint64_t count);

enum class Answers { live, at_hand };

/// One run of the stage graph over NumberedDataset rows against `teacher`. With the answers at hand one is fetched
/// before the clock starts and serves all micro-batches, so that nothing is left of the teacher but the targets.
/// `compute` has one thread, the student's: in the service too it is the only one with a team of OpenMP threads.
PipelineRun run_graph(const PipelineOptions& options, Student& student, boost::asio::any_io_executor compute,
                      const LoopbackTeacher& teacher, Answers answers, bool parallel, std::uint64_t steps);

/// Largest resident size of this process so far, in bytes.
std::uint64_t peak_resident_bytes();

}  // namespace distilld::bench

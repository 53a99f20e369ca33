#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <vector>

#include "pipeline/graph/decode_stage.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/graph/plan_stage.hpp"
#include "pipeline/graph/teacher_stage.hpp"
#include "pipeline/graph/trace_writer.hpp"

namespace distilld {

/// The stage teacher of several: a teacher stage each, with requests, window, limits and counters of its own, for the
/// rows of each micro-batch that are its teacher's (PlannedBatch::parts, in the order of `teachers`); one that has none
/// in a micro-batch is not asked about it. What they answer is joined on `join` when all have. The first of them to
/// fail ends the stage, with an error that names it; what they say in events names them too. `trace` may be null.
std::unique_ptr<TeacherStage> make_joined_teacher_stage(boost::asio::any_io_executor executor,
                                                        boost::asio::any_io_executor join, PlanStage& plan,
                                                        DecodeStage& decode, std::vector<GraphTeacher> teachers,
                                                        TraceWriter* trace);

}  // namespace distilld

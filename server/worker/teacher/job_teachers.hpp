#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "base/error.hpp"
#include "models/serving/local_teacher.hpp"
#include "pipeline/data/mixed_dataset.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/orders.hpp"
#include "server/worker/store_plan.hpp"
#include "server/worker/teacher/teacher_connection.hpp"

namespace distilld {

/// What a run needs from its teachers.
struct TeachersWish {
    std::map<std::string, TeacherSpec> specs;  ///< JobSpec::teachers
    std::uint32_t batch_rows = 1;              ///< sequences per micro-batch
    StoredData data;
    const MixedDataset* mixed = nullptr;      ///< each teacher is asked about its part; null: the only one about `data`
    models::LocalModels local;                ///< if a spec names a model
    std::unique_ptr<TeacherSource> probed{};  ///< of the only teacher; null: make it
    /// Instead of `local`, for models that this rank loads for others too; by the teacher's name.
    std::map<std::string, models::LocalModels> for_host{};
    std::map<std::string, std::string> bearers{};  ///< TeacherWish::bearer, by the teacher's name
    StoreGuard guard{};                            ///< TeacherWish::guard
};

/// Connects the teachers (connect_teacher()) one after the other, in the order of their names, and checks that their
/// answers fit into one array. Teachers in /teachers that could also send hidden states send logits. Errors name the
/// spec's field, events the teacher. Executor of `executors.io`.
boost::asio::awaitable<Result<std::vector<ConnectedTeacher>>> connect_teachers(TeachersWish wish,
                                                                               GraphExecutors executors,
                                                                               RunControl& control, EmitEvent emit);

/// In one line.
[[nodiscard]] std::string description_of(const std::vector<ConnectedTeacher>& teachers);

/// teacher_stage_options() of each.
[[nodiscard]] std::vector<GraphTeacher> graph_teachers(const std::vector<ConnectedTeacher>& teachers,
                                                       const JobSpec& spec, std::uint32_t decode_threads);

}  // namespace distilld

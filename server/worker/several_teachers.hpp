#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/serving/local_teacher.hpp"
#include "pipeline/core/job_spec.hpp"
#include "pipeline/data/mixed_dataset.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/orders.hpp"
#include "server/worker/store_plan.hpp"

namespace distilld {

/// One of several teachers that has passed its probe.
struct NamedTeacher {
    std::string name;
    std::unique_ptr<TeacherSource> source;
    TeacherInfo info;
    TeacherSource* asked = nullptr;  ///< ConnectedTeacher::asked
    bool asked_in_need = false;      ///< ConnectedTeacher::asked_in_need
};

/// What a run asks its teachers for. `data.dataset` is not looked at: each is asked about its part of `dataset`.
struct TeachersWish {
    std::map<std::string, TeacherSpec> specs;
    std::uint32_t batch_rows = 1;  ///< sequences of a micro-batch
    const MixedDataset* dataset = nullptr;
    StoredData data;
    models::LoadTeacherModel load_model;  ///< where a spec names a model
};

/// Connects each (connect_teacher()), one after the other, and checks that what they send can lie in one array. Logits
/// where a teacher would choose between them and hidden states. In the order of the parts of the dataset. Errors name
/// the spec's field, events the teacher. Executor of `executors.io`.
boost::asio::awaitable<Result<std::vector<NamedTeacher>>> connect_teachers(TeachersWish wish, GraphExecutors executors,
                                                                           RunControl& control, EmitEvent emit);

/// In one line.
[[nodiscard]] std::string description_of(const std::vector<NamedTeacher>& teachers);

/// As teacher_stage_options(), of each.
[[nodiscard]] std::vector<GraphTeacher> graph_teachers(const std::vector<NamedTeacher>& teachers, const JobSpec& spec,
                                                       std::uint32_t decode_threads);

}  // namespace distilld

#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>

#include "base/error.hpp"
#include "models/serving/local_teacher.hpp"
#include "pipeline/core/job_spec.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/store/store_writer.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/orders.hpp"
#include "server/worker/store_plan.hpp"

namespace distilld {

/// What a run asks its teacher for.
struct TeacherWish {
    TeacherSpec spec;
    std::uint32_t batch_rows = 1;             ///< sequences of a micro-batch
    StoredData data;                          ///< that the teacher is asked about
    models::LoadTeacherModel load_model;      ///< where the spec names a model
    std::unique_ptr<TeacherSource> probed{};  ///< of the same spec; null: it is to be made
};

/// A teacher that has passed its probe.
struct ConnectedTeacher {
    std::unique_ptr<TeacherSource> source;
    TeacherInfo info;
    /// Part of `source`: whom it asks about what no store has; null: nobody.
    TeacherSource* asked = nullptr;
    bool asked_in_need = false;  ///< only about what is damaged in a store that is complete
};

/// Makes the teacher behind the endpoints, or of the model that the spec names in their place, whose answers are to be
/// stored, and probes it; while none of them is up, that is said by events. An error of kind `cancelled`: `control`
/// was. Executor of `executors.io`.
boost::asio::awaitable<Result<ConnectedTeacher>> connect_endpoints(TeacherWish wish, GraphExecutors executors,
                                                                   RunControl& control, EmitEvent emit);

/// The answers are where the spec says: at its endpoints or with its model, in its store, or in both. Errors name the
/// spec's field. Otherwise as connect_endpoints().
boost::asio::awaitable<Result<ConnectedTeacher>> connect_teacher(TeacherWish wish, GraphExecutors executors,
                                                                 RunControl& control, EmitEvent emit);

/// Opens the store of the spec for writing, or makes it, alone or with others (StoreWriterOptions::shared): files.
/// Errors begin with /teacher/store.
[[nodiscard]] Result<std::shared_ptr<StoreWriter>> open_writer(const TeacherSpec& spec, const StoredData& data,
                                                               const TeacherInfo& info, bool shared);

/// How requests of so many rows and columns are scheduled, where so many threads decode their answers.
[[nodiscard]] TeacherStageOptions teacher_stage_options(const TeacherSpec& teacher, const TeacherSource& source,
                                                        const TeacherInfo& info, std::uint32_t rows,
                                                        std::uint32_t columns, std::uint32_t decode_threads);

}  // namespace distilld

#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "api/job_spec.hpp"
#include "base/error.hpp"
#include "models/serving/local_teacher.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/store/store_writer.hpp"
#include "pipeline/teacher/remote_teacher.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/orders.hpp"
#include "server/worker/store_plan.hpp"

namespace distilld {

/// What a run needs from its teacher.
struct TeacherWish {
    TeacherSpec spec;
    std::uint32_t batch_rows = 1;             ///< sequences per micro-batch
    StoredData data;                          ///< that the teacher is asked about
    models::LocalModels local;                ///< if the spec names a model
    std::unique_ptr<TeacherSource> probed{};  ///< of the same spec; null: make it
    std::string bearer{};                     ///< the key for the endpoints, instead of one that the spec names
    StoreGuard guard{};                       ///< of the run, for a store that only it writes
};

/// A teacher that has passed its probe.
struct ConnectedTeacher {
    std::unique_ptr<TeacherSource> source;
    TeacherInfo info;
    /// Part of `source`: asked about what no store has; null: nobody.
    TeacherSource* asked = nullptr;
    bool asked_in_need = false;  ///< only about what is damaged in a complete store
    std::string name{};          ///< in /teachers; empty: that of /teacher
};

/// Makes and probes a teacher with answers that are to be stored: the one behind the endpoints, or the model that the
/// spec names instead. Reports by events while no endpoint is up. Error of kind `cancelled`: `control` was. Executor of
/// `executors.io`.
boost::asio::awaitable<Result<ConnectedTeacher>> connect_endpoints(TeacherWish wish, GraphExecutors executors,
                                                                   RunControl& control, EmitEvent emit);

/// Connects the teacher that the spec describes: endpoints or a model, a store, or both. Errors name the spec's field.
/// Otherwise as connect_endpoints().
boost::asio::awaitable<Result<ConnectedTeacher>> connect_teacher(TeacherWish wish, GraphExecutors executors,
                                                                 RunControl& control, EmitEvent emit);

/// Opens or makes the spec's store for writing: files. Sets the options that follow from the spec. Errors begin with
/// /teacher/store.
[[nodiscard]] Result<std::shared_ptr<StoreWriter>> open_writer(const TeacherSpec& spec, const StoredData& data,
                                                               const TeacherInfo& info, StoreWriterOptions options);

/// The hosts that the operator allows a job's endpoints to have.
[[nodiscard]] Result<HostRule> teacher_hosts();

/// The schedule of requests with this number of rows and columns, when `decode_threads` decode their answers.
[[nodiscard]] TeacherStageOptions teacher_stage_options(const TeacherSpec& teacher, const TeacherSource& source,
                                                        const TeacherInfo& info, std::uint32_t rows,
                                                        std::uint32_t columns, std::uint32_t decode_threads);

}  // namespace distilld

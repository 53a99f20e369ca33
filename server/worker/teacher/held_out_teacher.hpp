#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "api/job_spec.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/graph/teacher/teacher_turn.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/store_plan.hpp"

namespace distilld {

/// A teacher of the training that is also asked about held-out rows.
struct HeldOutWish {
    TeacherSpec spec;
    TeacherInfo info;                ///< from the training's probe
    TeacherSource* asked = nullptr;  ///< ConnectedTeacher::asked
    bool asked_in_need = false;      ///< ConnectedTeacher::asked_in_need
    StoredData data;                 ///< the held-out set, or this teacher's part of it
    std::uint64_t tokens = 0;        ///< evaluated input positions
    std::filesystem::path folder;    ///< for its answers; not shared
    /// The evaluated rows, as indices into data.dataset->asked_about().
    std::function<std::vector<std::uint64_t>()> rows;
};

/// Answers that take more disk space than this are requested at each evaluation.
inline constexpr std::uint64_t kMaxKeptBytes = std::uint64_t{4} << 30U;

/// Answers about the held-out rows. Each is requested once, holding `turn`, and kept in `wish.folder` for later
/// evaluations and runs. Keeps what the training's own store would keep; without a store, exactly what the teacher
/// sends. Answers that cannot be kept (hidden states) or are too large are requested at each evaluation. Reports when
/// it empties a folder (other rows, or another teacher's answers) and when it does without a folder that cannot be
/// written. Null, which is reported: nobody can be asked. `turn` and `wish.asked` must outlive it. Executor of
/// `executors.io`.
boost::asio::awaitable<std::unique_ptr<TeacherSource>> make_held_out_teacher(HeldOutWish wish, TeacherTurn& turn,
                                                                             GraphExecutors executors, EmitEvent emit);

}  // namespace distilld

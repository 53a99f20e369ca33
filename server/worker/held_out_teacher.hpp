#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "pipeline/core/job_spec.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/graph/teacher_turn.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/store_plan.hpp"

namespace distilld {

/// A teacher of the training that is to be asked about held-out rows as well.
struct HeldOutWish {
    TeacherSpec spec;
    TeacherInfo info;                ///< of the training's probe
    TeacherSource* asked = nullptr;  ///< ConnectedTeacher::asked
    bool asked_in_need = false;      ///< ConnectedTeacher::asked_in_need
    StoredData data;                 ///< the held-out set, or this teacher's part of it
    std::uint64_t tokens = 0;        ///< input positions of it that are evaluated
    std::filesystem::path folder;    ///< for its answers; ours alone
    /// Of data.dataset->asked_about(): the rows that are evaluated.
    std::function<std::vector<std::uint64_t>()> rows;
};

/// Answers that take more on the disk are asked for at each evaluation.
inline constexpr std::uint64_t kMaxKeptBytes = std::uint64_t{4} << 30U;

/// Answers about the held-out rows: each is asked for once, for which it takes `turn`, and kept in `wish.folder`, which
/// later evaluations and runs read. What is kept is what the training's own store would keep; without one, what the
/// teacher sends, bit by bit, unless that cannot be kept (hidden states) or is too large: then it is asked for at each
/// evaluation. A folder of other rows or of another teacher's answers is emptied, one that cannot be written is done
/// without, and both are said. Null: nobody can be asked, which is said. `turn` and `wish.asked` must outlive it.
/// Executor of `executors.io`.
boost::asio::awaitable<std::unique_ptr<TeacherSource>> make_held_out_teacher(HeldOutWish wish, TeacherTurn& turn,
                                                                             GraphExecutors executors, EmitEvent emit);

}  // namespace distilld

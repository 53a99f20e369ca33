#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "models/serving/teacher_scorer.hpp"
#include "pipeline/core/job_spec.hpp"
#include "pipeline/teacher/teacher_source.hpp"

/// A teacher in the process. No libtorch here.
namespace distilld::models {

/// Loads the model that /teacher describes, on the thread that will score with it; `with_head`: hidden states may be
/// asked for. Errors say what is wrong with the folder.
using LoadTeacherModel = std::function<Result<std::unique_ptr<TeacherScorer>>(const TeacherSpec&, bool with_head)>;

/// Requests that are under way at once: one is computed, one waits for its turn, so that the thread never does.
inline constexpr std::uint32_t kLocalRequests = 2;

struct LocalTeacherOptions {
    std::uint32_t batch_columns = 1;                     ///< positions of the longest row that will be asked for
    std::function<void(const std::string&)> on_warning;  ///< on the teacher's executor. May be empty
};

/// The model in `spec.model_dir` as a teacher with one endpoint, of the folder's name. It has a thread of its own, on
/// which the model is loaded (by the probe) and computes, one request after the other in the order of the fetches; its
/// destructor waits for the one that is computed. Targets are those that `distilld teacher` sends of the model over
/// KServe: top-k rows where top_k is above 0, else hidden states or, where the spec asks for them, logits.
///
/// What fails would fail again, so that every failure of a fetch is `rejected`; its message begins with
/// /teacher/model_dir. The deadline of a fetch does not count: asking again would not be sooner. A fetch that is
/// cancelled ends at once; what it had queued is not begun, what it had begun is computed to its end. close() lets go
/// of the model.
std::unique_ptr<TeacherSource> make_local_teacher(boost::asio::any_io_executor io, TeacherSpec spec,
                                                  LoadTeacherModel load, LocalTeacherOptions options);

}  // namespace distilld::models

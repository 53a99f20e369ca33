#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "models/serving/teacher_scorer.hpp"
#include "pipeline/core/spec_sections.hpp"
#include "pipeline/teacher/teacher_source.hpp"

/// An in-process teacher. No libtorch here.
namespace distilld::models {

/// Loads the model that /teacher describes, on the thread that will score with it. `with_head`: hidden states may be
/// requested. Errors say what is wrong with the folder.
using LoadTeacherModel = std::function<Result<std::unique_ptr<TeacherScorer>>(const TeacherSpec&, bool with_head)>;

/// A module that /teacher describes, used on the thread of its teacher only.
class TeacherModule {
  public:
    virtual ~TeacherModule() = default;
    /// The outputs for a batch of samples; tensors in host memory.
    virtual Result<TeacherTargets> answer(const TokenBatch& samples) = 0;
    /// Without a vocabulary, positions and head.
    [[nodiscard]] virtual const ServedModel& model() const = 0;
};

/// The same for a module.
using LoadTeacherModule = std::function<Result<std::unique_ptr<TeacherModule>>(const TeacherSpec&)>;

/// How this program loads a teacher that computes in the process; an empty one cannot be loaded.
struct LocalModels {
    LoadTeacherModel model;    ///< of teacher.model_dir
    LoadTeacherModule module;  ///< of teacher.module
    /// Has one thread, which loads the model and computes. Null: the teacher makes its own.
    std::shared_ptr<boost::asio::thread_pool> thread{};
};

/// Requests in flight: one is computed while one waits, so that the thread never idles.
inline constexpr std::uint32_t kLocalRequests = 2;
/// Nobody is faster than the model in the process: whoever asks it waits, also from another process.
inline constexpr std::chrono::hours kLocalDeadline{24 * 365};

struct LocalTeacherOptions {
    std::uint32_t batch_columns = 1;                     ///< positions of the longest row that will be requested
    std::shared_ptr<const TokenBatch> samples;           ///< for a module: what the probe asks about
    std::function<void(const std::string&)> on_warning;  ///< called on the teacher's executor. May be empty
    std::shared_ptr<boost::asio::thread_pool> thread{};  ///< as in LocalModels
};

/// The model in `spec.model_dir` as a teacher with one endpoint, named after the folder. On its thread it
/// loads the model (in the probe) and computes one request after the other in the order of the fetches; the destructor
/// waits for the running one. Targets equal those that `distilld teacher` sends for the model over KServe: top-k rows
/// if top_k is above 0, else hidden states or, if the spec says so, logits.
///
/// A failure would recur, so every failure of a fetch is `rejected`; its message begins with /teacher/model_dir.
/// Ignores deadlines of fetches, because a retry would not be faster. A cancelled fetch ends at once: its queued work
/// is dropped, its running work is finished. close() releases the model.
std::unique_ptr<TeacherSource> make_local_teacher(boost::asio::any_io_executor io, TeacherSpec spec,
                                                  LoadTeacherModel load, LocalTeacherOptions options);

/// The same for the module in `spec.module`; targets are its outputs, and messages begin with /teacher/module.
std::unique_ptr<TeacherSource> make_module_teacher(boost::asio::any_io_executor io, TeacherSpec spec,
                                                   LoadTeacherModule load, LocalTeacherOptions options);

}  // namespace distilld::models

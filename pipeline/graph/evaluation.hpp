#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "pipeline/graph/batch_source.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/graph/plan_stage.hpp"
#include "pipeline/graph/student.hpp"
#include "pipeline/graph/teacher/teacher_stage.hpp"
#include "pipeline/graph/teacher/teacher_turn.hpp"

namespace distilld {

/// The held-out rows, and the teachers that are asked about them.
struct EvaluationSet {
    std::shared_ptr<BatchSource> batches;  ///< null: nothing is held out
    std::uint64_t count = 0;               ///< of its micro-batches, from 0
    /// Like GraphOptions::teachers; empty: no teacher is asked. Each fetch must take `turn` first
    /// (make_turn_taking_teacher()).
    std::vector<GraphTeacher> teachers{};
    std::shared_ptr<TeacherTurn> turn{};

    [[nodiscard]] bool empty() const noexcept { return count == 0; }
};

/// The sum of Student::evaluate() over the micro-batches from `first` on, one at a time, without a teacher. Empty if
/// `stopped` is true before one of them. On the executor of `executors.io`. All references must outlive the call.
boost::asio::awaitable<std::optional<EvalStats>> evaluate_batches(Student& student, const EvaluationSet& set,
                                                                  std::uint64_t first, GraphExecutors executors,
                                                                  std::function<bool()> stopped);

/// Evaluates a student repeatedly. Teacher answers are requested ahead, with the retries and limits of the training.
/// Meanwhile the training's requests are held back (TeacherTurn): its window is full.
///
/// An evaluation never fails the run. If the teacher does not answer (retries are spent, or only failures came for
/// kMaxEvaluationSilence), a warning tells so, and that evaluation has only the student's own figures. The training's
/// own requests decide whether training can go on. All calls on the executor of `executors.io`.
class Evaluator {
  public:
    /// `options` is the graph's. `on_event` may be empty.
    Evaluator(GraphExecutors executors, Student& student, EvaluationSet set, const GraphOptions& options,
              std::function<void(const WorkerEvent&)> on_event);

    [[nodiscard]] bool empty() const noexcept { return set_.empty(); }
    /// Empty: it was cancelled. Rethrows what student or plan threw, after its requests have ended.
    boost::asio::awaitable<std::optional<EvalStats>> run();
    /// The current evaluation ends after its micro-batch, and so do later ones.
    void cancel();
    /// Like TeacherStage::set_ceiling().
    void set_ceiling(std::uint32_t ceiling);

  private:
    boost::asio::awaitable<std::optional<EvalStats>> ask_and_evaluate();
    boost::asio::awaitable<std::uint64_t> evaluate_answered(TeacherStage& teacher, EvalStats& total);
    [[nodiscard]] std::vector<GraphTeacher> asked() const;

    GraphExecutors executors_;
    Student& student_;
    EvaluationSet set_;
    bool parallel_;
    std::function<void(const WorkerEvent&)> on_event_;
    TeacherStage* asking_ = nullptr;  // set while it asks
    std::optional<std::uint32_t> ceiling_;
    bool cancelled_ = false;
};

/// How long an evaluation waits for a teacher that only fails.
inline constexpr std::chrono::seconds kMaxEvaluationSilence{60};

/// Mean cross entropy of the target tokens; empty if there are none.
[[nodiscard]] inline std::optional<double> mean_loss(const EvalStats& total) {
    return total.target_tokens > 0 ? std::optional(total.ce_sum / static_cast<double>(total.target_tokens))
                                   : std::nullopt;
}

}  // namespace distilld

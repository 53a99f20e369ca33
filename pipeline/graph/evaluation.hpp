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
#include "pipeline/graph/teacher_stage.hpp"
#include "pipeline/graph/teacher_turn.hpp"

namespace distilld {

/// What is held out, and who is asked about it.
struct EvaluationSet {
    std::shared_ptr<BatchSource> batches;  ///< null: nothing is held out
    std::uint64_t count = 0;               ///< of its micro-batches, from 0
    /// One without a name, or several, of which `batches` has parts in this order; empty: nobody is asked. What goes
    /// over their wires takes `turn` first (make_turn_taking_teacher()).
    std::vector<GraphTeacher> teachers{};
    std::shared_ptr<TeacherTurn> turn{};

    [[nodiscard]] bool empty() const noexcept { return count == 0; }
};

/// The sum of Student::evaluate() over the micro-batches from `first` on, one after the other, nobody being asked about
/// them. Nothing when `stopped` says so before one of them. On the executor of `executors.io`. All that is referred to
/// must outlive the call.
boost::asio::awaitable<std::optional<EvalStats>> evaluate_batches(Student& student, const EvaluationSet& set,
                                                                  std::uint64_t first, GraphExecutors executors,
                                                                  std::function<bool()> stopped);

/// Evaluates a student again and again. The teacher's answers are asked for ahead of it, with the retries and limits of
/// the training; while any is, the training's requests are held back (TeacherTurn), for which it has a full window.
///
/// A figure is not worth a run: where the teacher does not answer (its retries are spent, or nothing but failures have
/// come for kMaxEvaluationSilence), a warning says so, and that evaluation has the student's own figures only. Whether
/// the training can go on is for its own requests to find out. All calls on the executor of `executors.io`.
class Evaluator {
  public:
    /// `options` is the graph's. `on_event` may be empty.
    Evaluator(GraphExecutors executors, Student& student, EvaluationSet set, const GraphOptions& options,
              std::function<void(const WorkerEvent&)> on_event);

    [[nodiscard]] bool empty() const noexcept { return set_.empty(); }
    /// Nothing: it was cancelled. Throws what student or plan threw, when its requests have ended.
    boost::asio::awaitable<std::optional<EvalStats>> run();
    /// The evaluation under way ends after its micro-batch, and so do later ones.
    void cancel();
    /// As TeacherStage::set_ceiling().
    void set_ceiling(std::uint32_t ceiling);

  private:
    boost::asio::awaitable<std::optional<EvalStats>> ask_and_evaluate();
    boost::asio::awaitable<std::uint64_t> evaluate_answered(TeacherStage& teacher, EvalStats& total);
    [[nodiscard]] std::unique_ptr<TeacherStage> make_stage(PlanStage& plan, DecodeStage& decode) const;
    [[nodiscard]] GraphTeacher with_options(GraphTeacher teacher) const;

    GraphExecutors executors_;
    Student& student_;
    EvaluationSet set_;
    bool parallel_;
    std::function<void(const WorkerEvent&)> on_event_;
    TeacherStage* asking_ = nullptr;  // while one is
    std::optional<std::uint32_t> ceiling_;
    bool cancelled_ = false;
};

/// So long an evaluation waits for a teacher from which nothing but failures come.
inline constexpr std::chrono::seconds kMaxEvaluationSilence{60};

/// Mean cross entropy of the target tokens; nothing when there are none.
[[nodiscard]] inline std::optional<double> mean_loss(const EvalStats& total) {
    return total.target_tokens > 0 ? std::optional(total.ce_sum / static_cast<double>(total.target_tokens))
                                   : std::nullopt;
}

}  // namespace distilld

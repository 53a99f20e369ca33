#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "pipeline/async/task_group.hpp"
#include "pipeline/core/student_snapshot.hpp"
#include "pipeline/graph/graph_options.hpp"

namespace distilld {

/// The runs of eval.command during training: of exported copies of the student, one at a time. The student waits for
/// the copy, never for the program: a step that is due while the program still runs is left out. All calls on the
/// graph's executor.
class ProgramEvaluations {
  public:
    /// After every `every_steps` steps; 0, or hooks without functions: never.
    ProgramEvaluations(const GraphExecutors& executors, std::uint64_t every_steps, EvalProgramHooks hooks,
                       std::function<void(const WorkerEvent&)> on_event);

    /// Whether this step is due. Then the caller must export(). A warning reports the first step of
    /// several that are left out.
    [[nodiscard]] bool begin(std::uint64_t step);
    /// Writes the student and starts the program, which join() waits for.
    boost::asio::awaitable<void> export_student(std::uint64_t step, std::shared_ptr<const StudentSnapshot> taken);
    /// Ends the program, and starts no other.
    void cancel();
    /// Waits for the end of the program.
    boost::asio::awaitable<void> join();

  private:
    boost::asio::awaitable<void> run(std::uint64_t step);

    boost::asio::any_io_executor disk_;
    std::uint64_t every_steps_;
    EvalProgramHooks hooks_;
    std::function<void(const WorkerEvent&)> on_event_;
    TaskGroup programs_;
    bool busy_ = false;  ///< an export is written, or a program runs
    bool told_ = false;  ///< that steps are left out meanwhile
};

}  // namespace distilld

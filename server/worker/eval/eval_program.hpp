#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <filesystem>

#include "api/job_spec.hpp"
#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// The program of eval.command: its first word, by PATH if it has no slash; empty: there is no command. An error names
/// the field.
[[nodiscard]] Result<std::filesystem::path> find_eval_program(const EvalSpec& eval);

/// Runs eval.command on the student in `folder`, at a lower priority than the caller's, with none of the operator's
/// keys. All that can fail is the event's problem, with the program's last words. Cancellation kills the program and
/// what it has started, and throws; the death of this process kills them too. Executor as for run_command().
[[nodiscard]] boost::asio::awaitable<FiguresEvent> judge_student(EvalSpec eval, std::uint64_t step,
                                                                 std::filesystem::path folder);

}  // namespace distilld

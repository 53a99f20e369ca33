#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "pipeline/graph/student.hpp"
#include "server/worker/preparation.hpp"
#include "server/worker/store_plan.hpp"

namespace distilld {

/// Reads the training and the held-out set of `run.spec` with the tokenizer that the spec comes to, and fills in
/// `run.dataset`, `run.eval`, `run.tokens` and what is said of the tokenizer. `run.student` is there. Returns what the
/// export is to hold of the tokenizer. Errors name the spec field; one of the kind `cancelled`: `cancelled` said true
/// meanwhile. Any thread, and the disk.
[[nodiscard]] Result<ExportTokenizer> load_data(PreparedRun& run,
                                                const std::function<void(const std::string&)>& on_info,
                                                const std::function<void(const std::string&)>& on_warning,
                                                const std::function<bool()>& cancelled);

/// What a teacher is told of the run's data; `dataset` is what it is asked about.
[[nodiscard]] StoredData stored_data(const PreparedRun& run, const Dataset* dataset);

/// Rows of the held-out set that each evaluation reads: eval.max_rows (or dataset.eval_rows, its older name), or all.
[[nodiscard]] std::uint64_t evaluated_rows(const PreparedRun& run);

}  // namespace distilld

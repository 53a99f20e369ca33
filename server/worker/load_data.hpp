#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "pipeline/graph/student.hpp"
#include "server/worker/preparation.hpp"
#include "server/worker/store_plan.hpp"

namespace distilld {

/// Reads the training and the held-out set of `run.spec` with the spec's effective tokenizer. Fills in `run.dataset`,
/// `run.eval`, `run.tokens` and the tokenizer's fields. `run.student` must be set. Returns the tokenizer files of the
/// export. Errors name the spec field; kind `cancelled`: `cancelled` returned true. Any thread; reads the disk.
[[nodiscard]] Result<ExportTokenizer> load_data(PreparedRun& run,
                                                const std::function<void(const std::string&)>& on_info,
                                                const std::function<void(const std::string&)>& on_warning,
                                                const std::function<bool()>& cancelled);

/// Lets the student try the first rows of the training data and of the held-out data. Compute thread.
Result<void> try_first_rows(const PreparedRun& run);

/// What a teacher is told about the run's data; `dataset` is what it is asked about.
[[nodiscard]] StoredData stored_data(const PreparedRun& run, const Dataset* dataset);

/// Held-out rows per evaluation: eval.max_rows (or dataset.eval_rows, its older name), or all.
[[nodiscard]] std::uint64_t evaluated_rows(const PreparedRun& run);

}  // namespace distilld

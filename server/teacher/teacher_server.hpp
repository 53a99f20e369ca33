#pragma once

#include "server/teacher/teacher_options.hpp"

namespace distilld {

/// Serves the model until SIGTERM or SIGINT, then lets running requests finish (5 s) and returns 0. Speaks KServe v2
/// (/v2…), the seed's JSON form (/v1/completions), /v1/models and /metrics. Prints one line to stdout once the model is
/// loaded. If the model folder cannot be loaded or the address cannot be bound, prints one error line on stderr and
/// returns 1; for invalid options returns 2. Call it once, from the main thread: it takes over SIGTERM and SIGINT and
/// sets libtorch's number of threads.
int run_teacher_server(const TeacherOptions& options);

}  // namespace distilld

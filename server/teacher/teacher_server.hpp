#pragma once

#include "server/teacher/teacher_options.hpp"

namespace distilld {

/// Serves the model until SIGTERM or SIGINT, then lets requests under way finish (5 s) and returns 0. Speaks KServe v2
/// (/v2…), the seed's JSON form (/v1/completions), /v1/models and /metrics. Prints one line to stdout once the model is
/// loaded. A model folder that cannot be loaded or an address that cannot be bound: one error line on stderr, returns
/// 1; options that make no sense: returns 2. Call it once, from the main thread: it takes over SIGTERM and SIGINT and
/// sets the number of threads of libtorch.
int run_teacher_server(const TeacherOptions& options);

}  // namespace distilld

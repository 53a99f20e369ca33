#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// Makes and probes the teacher. Runs on `io`; cancelled with the fetch that called it.
using ConnectTeacher = std::function<boost::asio::awaitable<Result<std::unique_ptr<TeacherSource>>>()>;

/// A teacher that is connected by its first fetch, for rare use. If that fails, the fetch fails
/// (FailureKind::rejected), and the next one tries again. `names` are the names of its endpoints. Must not be probed.
/// `io` runs one thread.
[[nodiscard]] std::unique_ptr<TeacherSource> make_lazy_teacher(boost::asio::any_io_executor io,
                                                               std::vector<std::string> names, ConnectTeacher connect);

}  // namespace distilld

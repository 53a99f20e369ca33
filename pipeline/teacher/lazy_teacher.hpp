#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// Makes the teacher and probes it. On `io`; cancelled as the fetch that wants it is.
using ConnectTeacher = std::function<boost::asio::awaitable<Result<std::unique_ptr<TeacherSource>>>()>;

/// A teacher that is connected by the first fetch: for one that will hardly be asked. When that fails the fetch does
/// (FailureKind::rejected), and the next tries again. `names` are those of its endpoints. Not to be probed. `io` runs
/// one thread.
[[nodiscard]] std::unique_ptr<TeacherSource> make_lazy_teacher(boost::asio::any_io_executor io,
                                                               std::vector<std::string> names, ConnectTeacher connect);

}  // namespace distilld

#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/describe/class.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "models/serving/local_teacher.hpp"
#include "pipeline/async/task_group.hpp"
#include "server/http/http_server.hpp"
#include "server/teacher/score_queue.hpp"
#include "server/teacher/teacher_metrics.hpp"
#include "server/teacher/teacher_service.hpp"

namespace distilld::teacher {

/// Where a HostTeacher answers.
struct HostTeacherPlace {
    std::uint16_t port = 0;  ///< of the loopback interface
    std::string key;         ///< bearer key (RFC 6750)
};
BOOST_DESCRIBE_STRUCT(HostTeacherPlace, (), (port, key))

/// A model in this process that answers other processes of the host too, as `distilld teacher` does, but only on the
/// loopback interface and only to requests with its key. One thread computes for all. `io` is a strand or has one
/// thread; everything is called there.
class HostTeacher {
  public:
    HostTeacher(boost::asio::any_io_executor io, boost::asio::any_io_executor encode);
    HostTeacher(const HostTeacher&) = delete;
    HostTeacher& operator=(const HostTeacher&) = delete;

    /// `local` with a loader that leaves its model here too, and with this object's thread.
    [[nodiscard]] models::LocalModels keeping(models::LocalModels local);

    /// Answers others from now on; keeping() has loaded the model.
    Result<HostTeacherPlace> serve();

    /// Answers nobody any more and lets go of the model. Waits for the running computation. May be called again; must
    /// be called before the destructor if serve() was.
    boost::asio::awaitable<void> end();

  private:
    boost::asio::any_io_executor io_;
    std::shared_ptr<boost::asio::thread_pool> thread_ = std::make_shared<boost::asio::thread_pool>(1);
    /// Shared with the teacher of this process, which ends on its own. Written on thread_, before serve().
    std::shared_ptr<models::TeacherScorer> scorer_;
    TeacherMetrics metrics_;
    ScoreQueue queue_;
    TeacherService service_;
    std::unique_ptr<http::Server> server_;
    TaskGroup tasks_;
};

}  // namespace distilld::teacher

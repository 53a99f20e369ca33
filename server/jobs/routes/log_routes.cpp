#include "server/jobs/routes/log_routes.hpp"

#include <utility>

#include "base/error.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/job_refusals.hpp"
#include "server/jobs/routes/query_reader.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using http::Request;
using http::Response;

constexpr std::uint32_t kTailDefault = 1000;

class LogApi {
  public:
    LogApi(JobManager& manager, std::shared_ptr<JobLogs> logs) : manager_(manager), logs_(std::move(logs)) {}

    asio::awaitable<Response> logs(Request request) {
        QueryReader query(request, {"tail"});
        const auto lines = query.number<std::uint32_t>("tail", 1, JobLogs::kMaxTail).value_or(kTailDefault);
        query.finish();
        // A log is a file: only the id of an existing job may become its name.
        const api::Job job = co_await job_of(manager_, request);
        Response response;
        response.content_type = "text/plain; charset=utf-8";
        response.headers = {{"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}};
        try {
            response.body = co_await logs_->tail(job.id, lines);
        } catch (const ErrorException& error) {
            log::error("http", error.what());
            co_return unavailable(request.path, "log_unavailable",
                                  "the job's log cannot be read; the service's log says why");
        }
        co_return response;
    }

  private:
    JobManager& manager_;
    std::shared_ptr<JobLogs> logs_;
};

}  // namespace

std::vector<http::Route> make_log_routes(JobManager& manager, std::shared_ptr<JobLogs> logs) {
    const auto api = std::make_shared<LogApi>(manager, std::move(logs));
    return {api_route(api, "GET", "/v1/jobs/{id}/logs", &LogApi::logs)};
}

}  // namespace distilld

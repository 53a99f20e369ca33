#include "server/jobs/routes/api_route.hpp"

#include <algorithm>
#include <boost/json/object.hpp>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using api::Problem;
using http::Request;
using http::Response;

/// Runs a handler, which outlives its coroutine.
asio::awaitable<Response> answer_of(std::shared_ptr<const http::Handler> handler, Request request) {
    const std::string path = request.path;
    try {
        co_return co_await (*handler)(std::move(request));
    } catch (const ProblemError& error) {
        co_return http::to_response(error.problem);
    } catch (const ErrorException& error) {
        log::error("http", path + ": " + error.what());
        co_return unavailable(path, "store_unavailable", "the job store cannot be used; the service's log says why");
    }
}

}  // namespace

void refuse(const Request& request, unsigned status, std::string code, std::string detail, std::string param) {
    Problem problem;
    problem.status = status;
    problem.code = std::move(code);
    problem.detail = std::move(detail);
    problem.param = std::move(param);
    problem.instance = request.path;
    throw ProblemError{std::move(problem)};
}

Response json_response(unsigned status, const boost::json::object& body) {
    Response response;
    response.status = status;
    response.body = to_text(body);
    return response;
}

Response unavailable(const std::string& path, std::string code, std::string detail) {
    Problem problem;
    problem.status = 503;
    problem.code = std::move(code);
    problem.detail = std::move(detail);
    problem.instance = path;
    return http::to_response(problem, {{"Retry-After", "10"}});
}

http::Route api_route(const char* method, const char* pattern, http::Handler handler, Access access) {
    const auto shared = std::make_shared<const http::Handler>(std::move(handler));
    http::Route row{method, pattern, [shared](Request request) { return answer_of(shared, std::move(request)); }};
    row.json_body = true;
    row.vital = access != Access::usual;
    row.any_host = access == Access::anybody;
    if (access == Access::anybody) {
        row.right = http::Right::nothing;
    }
    return row;
}

void add_routes(std::vector<http::Route>& table, std::vector<http::Route> rows) {
    std::ranges::move(rows, std::back_inserter(table));
}

}  // namespace distilld

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "api/http_message.hpp"
#include "api/problem.hpp"
#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"

/// What the handlers of the REST API share: they refuse, and answer with JSON.
namespace distilld {

/// Thrown by a handler or by a QueryReader; becomes the answer.
struct ProblemError {
    api::Problem problem;
};

[[noreturn]] void refuse(const api::Request& request, unsigned status, std::string code, std::string detail,
                         std::string param = {});

[[nodiscard]] api::Response json_response(unsigned status, const boost::json::object& body);
/// 503 for what passes by itself: the client may ask again.
[[nodiscard]] api::Response unavailable(const std::string& path, std::string code, std::string detail);

[[noreturn]] void job_not_found(const api::Request& request, const std::string& id);

/// The job whose id stands in the path. Refuses with 404 where there is none. `request` must outlive the call.
[[nodiscard]] boost::asio::awaitable<api::Job> job_of(JobManager& manager, const api::Request& request);

/// Who may ask, beside those that any route answers.
enum class Access { usual, vital, anybody };

/// A row of the routing table. What `handler` refuses becomes a problem; what the store cannot do (ErrorException),
/// 503.
[[nodiscard]] http::Route api_route(const char* method, const char* pattern, http::Handler handler,
                                    Access access = Access::usual);

/// The same, of a member function of the object that is shared by the routes.
template <class Api>
[[nodiscard]] http::Route api_route(const std::shared_ptr<Api>& api, const char* method, const char* pattern,
                                    boost::asio::awaitable<api::Response> (Api::*handler)(api::Request),
                                    Access access = Access::usual) {
    return api_route(
        method, pattern, [api, handler](api::Request request) { return ((*api).*handler)(std::move(request)); },
        access);
}

}  // namespace distilld

#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/problem.hpp"
#include "server/http/http_message.hpp"
#include "server/http/http_server.hpp"

/// Shared by the handlers of the REST API: refusals, and answers in JSON.
namespace distilld {

/// Thrown by a handler or by a QueryReader; becomes the answer.
struct ProblemError {
    api::Problem problem;
};

[[noreturn]] void refuse(const http::Request& request, unsigned status, std::string code, std::string detail,
                         std::string param = {});

[[nodiscard]] http::Response json_response(unsigned status, const boost::json::object& body);
/// 503 for a temporary condition: the client may ask again.
[[nodiscard]] http::Response unavailable(const std::string& path, std::string code, std::string detail);

/// Who may ask, besides those whom every route answers.
enum class Access { usual, vital, anybody };

/// A row of the routing table. A refusal by `handler` becomes a problem; a failure of the store (ErrorException)
/// becomes 503.
[[nodiscard]] http::Route api_route(const char* method, const char* pattern, http::Handler handler,
                                    Access access = Access::usual);

/// The same for a member function of an object that the routes share.
template <class Api>
[[nodiscard]] http::Route api_route(const std::shared_ptr<Api>& api, const char* method, const char* pattern,
                                    boost::asio::awaitable<http::Response> (Api::*handler)(http::Request),
                                    Access access = Access::usual) {
    return api_route(
        method, pattern, [api, handler](http::Request request) { return ((*api).*handler)(std::move(request)); },
        access);
}

/// Adds rows to a routing table.
void add_routes(std::vector<http::Route>& table, std::vector<http::Route> rows);

}  // namespace distilld

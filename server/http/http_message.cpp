#include "server/http/http_message.hpp"

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/status.hpp>
#include <utility>

namespace distilld::http {

namespace bhttp = boost::beast::http;

std::optional<std::string_view> Request::header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
        if (boost::beast::iequals(key, name)) {
            return value;
        }
    }
    return std::nullopt;
}

std::optional<std::string_view> Request::query_value(std::string_view name) const {
    for (const auto& [key, value] : query) {
        if (key == name) {
            return value;
        }
    }
    return std::nullopt;
}

std::string_view Request::path_parameter(std::string_view name) const {
    for (const auto& [key, value] : path_parameters) {
        if (key == name) {
            return value;
        }
    }
    return {};
}

Response to_response(api::Problem problem, Headers headers) {
    Response response;
    response.status = problem.status;
    response.content_type = "application/problem+json";
    response.headers = std::move(headers);
    if (problem.title.empty()) {
        problem.title = bhttp::obsolete_reason(bhttp::int_to_status(problem.status));
    }
    response.body = api::to_json(problem);
    return response;
}

}  // namespace distilld::http

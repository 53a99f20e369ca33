#include "server/http/http_message.hpp"

#include <boost/beast/core/string.hpp>
#include <utility>

namespace distilld::http {
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

Response to_response(const api::Problem& problem, Headers headers) {
    Response response;
    response.status = problem.status;
    response.content_type = "application/problem+json";
    response.headers = std::move(headers);
    response.body = api::to_json(problem);
    return response;
}

}  // namespace distilld::http

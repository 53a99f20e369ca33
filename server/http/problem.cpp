#include "server/http/problem.hpp"

#include <boost/beast/http/status.hpp>
#include <boost/json.hpp>

namespace distilld::http {

std::string reason_phrase(unsigned status) {
    const auto text = boost::beast::http::obsolete_reason(boost::beast::http::int_to_status(status));
    return std::string(text.data(), text.size());
}

api::Response make_problem(unsigned status, std::string_view detail) {
    const boost::json::string_view text(detail.data(), detail.size());
    boost::json::object error;
    error["message"] = text;
    error["type"] = status < 500 ? "invalid_request_error" : "server_error";
    error["param"] = nullptr;
    error["code"] = nullptr;
    boost::json::object problem;
    problem["type"] = "about:blank";
    problem["title"] = reason_phrase(status);
    problem["status"] = status;
    problem["detail"] = text;
    problem["error"] = std::move(error);

    api::Response response;
    response.status = status;
    response.content_type = "application/problem+json";
    response.body = boost::json::serialize(problem);
    return response;
}

}  // namespace distilld::http

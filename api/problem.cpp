#include "api/problem.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <span>

#include "api/text_checks.hpp"
#include "base/json_text.hpp"

namespace distilld::api {

const char* reason_phrase(unsigned status) noexcept {
    switch (status) {
        case 400:
            return "Bad Request";
        case 401:
            return "Unauthorized";
        case 403:
            return "Forbidden";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 406:
            return "Not Acceptable";
        case 408:
            return "Request Timeout";
        case 409:
            return "Conflict";
        case 411:
            return "Length Required";
        case 413:
            return "Content Too Large";
        case 414:
            return "URI Too Long";
        case 415:
            return "Unsupported Media Type";
        case 421:
            return "Misdirected Request";
        case 422:
            return "Unprocessable Content";
        case 429:
            return "Too Many Requests";
        case 431:
            return "Request Header Fields Too Large";
        case 500:
            return "Internal Server Error";
        case 501:
            return "Not Implemented";
        case 502:
            return "Bad Gateway";
        case 503:
            return "Service Unavailable";
        case 504:
            return "Gateway Timeout";
        case 505:
            return "HTTP Version Not Supported";
        case 507:
            return "Insufficient Storage";
        default:
            return "Error";
    }
}

std::string to_json(const Problem& problem) {
    const std::string title = problem.title.empty() ? reason_phrase(problem.status) : problem.title;
    boost::json::object body;
    body["type"] = problem.type;
    body["title"] = title;
    body["status"] = problem.status;
    if (!problem.detail.empty()) {
        body["detail"] = problem.detail;
    }
    if (!problem.instance.empty()) {
        body["instance"] = problem.instance;
    }
    if (!problem.errors.empty()) {
        boost::json::array errors;
        const std::size_t listed = std::min(problem.errors.size(), kMaxListed);
        for (const auto& violation : std::span(problem.errors).first(listed)) {
            boost::json::object error;
            if (violation.parameter.empty()) {
                error["pointer"] = violation.pointer;
            } else {
                error["parameter"] = violation.parameter;
            }
            error["code"] = violation.code;
            error["detail"] = violation.detail;
            errors.push_back(std::move(error));
        }
        body["errors"] = std::move(errors);
        if (problem.errors.size() > listed) {
            body["more_errors"] = problem.errors.size() - listed;
        }
    }
    boost::json::object error;
    error["message"] = problem.detail.empty() ? title : problem.detail;
    error["type"] = problem.status < 500 ? "invalid_request_error" : "server_error";
    error["param"] = nullptr;
    if (!problem.param.empty()) {
        error["param"] = problem.param;
    }
    error["code"] = nullptr;
    if (!problem.code.empty()) {
        error["code"] = problem.code;
    }
    body["error"] = std::move(error);
    return to_text(body);
}

Response to_response(const Problem& problem, Headers headers) {
    Response response;
    response.status = problem.status;
    response.content_type = "application/problem+json";
    response.headers = std::move(headers);
    response.body = to_json(problem);
    return response;
}

Problem spec_problem(const SpecViolations& violations, std::string instance) {
    Problem problem;
    problem.status = 400;
    problem.title = "The job spec is not valid";
    problem.code = "invalid_job_spec";
    problem.instance = std::move(instance);
    problem.detail = describe(violations);
    if (!violations.violations.empty()) {
        problem.param = violations.violations.front().pointer;
    }
    problem.errors = violations.violations;
    return problem;
}

}  // namespace distilld::api

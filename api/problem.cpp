#include "api/problem.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <iterator>
#include <span>
#include <utility>

#include "api/kinds/text_checks.hpp"
#include "base/json_text.hpp"

namespace distilld::api {

namespace {

constexpr std::pair<unsigned, const char*> kReasons[] = {
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

/// "Error" for an unknown status.
const char* reason_phrase(unsigned status) noexcept {
    const auto* row = std::ranges::find(kReasons, status, &std::pair<unsigned, const char*>::first);
    return row == std::end(kReasons) ? "Error" : row->second;
}

}  // namespace

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

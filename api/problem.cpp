#include "api/problem.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <span>
#include <utility>

#include "api/kinds/text_checks.hpp"
#include "base/json_text.hpp"

namespace distilld::api {

std::string to_json(const Problem& problem) {
    boost::json::object body{{"type", problem.type}, {"title", problem.title}, {"status", problem.status}};
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
            const bool in_body = violation.parameter.empty();
            errors.push_back({{in_body ? "pointer" : "parameter", in_body ? violation.pointer : violation.parameter},
                              {"code", violation.code},
                              {"detail", violation.detail}});
        }
        body["errors"] = std::move(errors);
        if (problem.errors.size() > listed) {
            body["more_errors"] = problem.errors.size() - listed;
        }
    }
    const auto text_or_null = [](const std::string& text) {
        return text.empty() ? boost::json::value(nullptr) : boost::json::value(text);
    };
    body["error"] = {{"message", problem.detail.empty() ? problem.title : problem.detail},
                     {"type", problem.status < 500 ? "invalid_request_error" : "server_error"},
                     {"param", text_or_null(problem.param)},
                     {"code", text_or_null(problem.code)}};
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

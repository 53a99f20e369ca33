#pragma once

#include <string>
#include <vector>

#include "api/job_spec_json.hpp"

namespace distilld::api {

/// An error answer: RFC 9457 `application/problem+json` with two more members: `errors`, one {pointer, code, detail}
/// per violation of the body or {parameter, code, detail} of the query, and `error` {message, type, param, code} for
/// OpenAI's clients.
struct Problem {
    unsigned status = 500;
    std::string type = "about:blank";  ///< URI reference of the kind of problem
    std::string title;                 ///< empty: answers get the status's own reason phrase
    std::string detail;                ///< for people; names the field, file or state
    std::string instance;              ///< URI reference of this occurrence, usually the path; empty = left out
    std::string code;                  ///< short name for programs ("job_not_found"); empty = left out
    std::string param;                 ///< the query parameter or field at fault; empty = null
    std::vector<Violation> errors;
};

[[nodiscard]] std::string to_json(const Problem& problem);

/// A problem with a spec: status 400, all violations listed.
[[nodiscard]] Problem spec_problem(const SpecViolations& violations, std::string instance);

}  // namespace distilld::api

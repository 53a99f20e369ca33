#pragma once

#include <string>
#include <vector>

#include "api/http_message.hpp"
#include "api/job_spec_json.hpp"

namespace distilld::api {

/// An error answer: RFC 9457 `application/problem+json`, with two members more: `errors`, one {pointer, code, detail}
/// for each violation of the body or {parameter, code, detail} of the query, and `error` {message, type, param, code},
/// where clients made for OpenAI's API look.
struct Problem {
    unsigned status = 500;
    std::string type = "about:blank";  ///< URI reference of the kind of problem
    std::string title;                 ///< empty: the status' own reason phrase
    std::string detail;                ///< for a person; names the field, file or state
    std::string instance;              ///< URI reference of this occurrence, mostly the path; empty = left out
    std::string code;                  ///< short name for programs ("job_not_found"); empty = left out
    std::string param;                 ///< query parameter or field that is to blame; empty = null
    std::vector<Violation> errors;
};

[[nodiscard]] std::string to_json(const Problem& problem);

/// The answer that carries the problem; `headers` are sent with it.
[[nodiscard]] Response to_response(const Problem& problem, Headers headers = {});

/// A problem with a spec: status 400, all violations listed.
[[nodiscard]] Problem spec_problem(const SpecViolations& violations, std::string instance);

}  // namespace distilld::api

#include "server/http/reply.hpp"

#include <utility>

#include "api/problem.hpp"

namespace distilld::http {

api::Response make_problem(unsigned status, std::string detail) {
    api::Problem problem;
    problem.status = status;
    problem.detail = std::move(detail);
    return api::to_response(problem);
}

}  // namespace distilld::http

#include "server/openai/openai_routes.hpp"

#include <utility>

#include "server/jobs/routes/job_access.hpp"

namespace distilld::openai {

std::vector<http::Route> make_openai_routes(const OpenAiParts& parts) {
    std::vector<http::Route> routes;
    for (const auto make : {make_file_routes, make_fine_tuning_routes, make_model_routes}) {
        for (auto& route : make(parts)) {
            routes.push_back(std::move(route));
        }
    }
    guard_jobs_of_others(routes, parts.manager);
    return routes;
}

}  // namespace distilld::openai

#include "server/openai/openai_routes.hpp"

#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/job_access.hpp"

namespace distilld::openai {

std::vector<http::Route> make_openai_routes(const OpenAiParts& parts) {
    std::vector<http::Route> routes;
    for (const auto make : {make_file_routes, make_fine_tuning_routes, make_model_routes}) {
        add_routes(routes, make(parts));
    }
    guard_jobs_of_others(routes, parts.manager);
    return routes;
}

}  // namespace distilld::openai

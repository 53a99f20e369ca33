#include "server/openai/openai_routes.hpp"

#include <utility>

namespace distilld::openai {

std::vector<http::Route> make_openai_routes(const OpenAiParts& parts) {
    std::vector<http::Route> routes;
    for (const auto make : {make_file_routes, make_fine_tuning_routes, make_model_routes}) {
        for (auto& route : make(parts)) {
            routes.push_back(std::move(route));
        }
    }
    return routes;
}

}  // namespace distilld::openai

#include "pipeline/teacher/protocols/server_signs.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <utility>

#include "pipeline/teacher/transport/http_failure.hpp"

namespace distilld {
namespace {

/// Of `{"name": …}`; empty for anything else.
std::string name_in(const HttpResponse& response) {
    boost::system::error_code failed;
    const auto value = boost::json::parse(body_text(response), failed);
    const auto* object = failed ? nullptr : value.if_object();
    const auto* name = object != nullptr ? object->if_contains("name") : nullptr;
    const auto* text = name != nullptr ? name->if_string() : nullptr;
    return text != nullptr ? std::string(*text) : std::string();
}

}  // namespace

boost::asio::awaitable<FetchResult<ServerSigns>> ask_for_signs(ProbeDialogue& dialogue, std::string base,
                                                               std::string query) {
    ServerSigns signs;
    const std::string page = dialogue.page(base + "/v2");
    const auto response = co_await dialogue.send(make_get(base + "/v2" + query), std::nullopt);
    if (!response) {
        co_return response.error();
    }
    if (response->status == 401 || response->status == 403) {
        co_return failure_of_status(page, *response);
    }
    if (is_success(*response)) {
        signs.inference_server = name_in(*response);
    }
    if (signs.inference_server.empty()) {
        auto models = co_await ask_for_models(dialogue, base + "/v1/models" + query);
        if (!models) {
            co_return models.error();
        }
        signs.models = std::move(*models);
    }
    co_return signs;
}

}  // namespace distilld

#include "pipeline/teacher/protocols/server_signs.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/join.hpp"
#include "base/json_members.hpp"
#include "base/json_text.hpp"
#include "net/http_failure.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

/// The object in a body; empty if the body is not an object.
json::object object_in(std::string_view body) {
    boost::system::error_code failed;
    json::value value = json::parse(body, failed);
    return failed || !value.is_object() ? json::object() : std::move(value.get_object());
}

std::string text_member(const json::object& object, std::string_view name) {
    const auto* value = object.if_contains(name);
    return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

std::uint64_t count_member(const json::object& object, std::string_view name) {
    const auto* value = object.if_contains(name);
    const auto* count = value != nullptr ? value->if_int64() : nullptr;
    return count != nullptr && *count > 0 ? static_cast<std::uint64_t>(*count) : 0;
}

const json::array* list_member(const json::object& object, std::string_view name) {
    const auto* value = object.if_contains(name);
    return value != nullptr ? value->if_array() : nullptr;
}

std::vector<std::int32_t> ids_in(const json::object& answer) {
    const json::array* listed = list_member(answer, "tokens");
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; listed != nullptr && i < listed->size(); ++i) {
        const auto id = JsonMembers::whole_number<std::int32_t>((*listed)[i]);
        if (!id) {
            return {};
        }
        ids.push_back(*id);
    }
    return ids;
}

}  // namespace

Result<std::vector<ListedModel>> parse_model_list(std::string_view body) {
    const json::object object = object_in(body);
    const json::array* list = list_member(object, "data");
    if (list == nullptr) {
        return teacher_error("is not a list of models ({\"data\": […]})");
    }
    std::vector<ListedModel> models;
    for (const auto& entry : *list) {
        if (const auto* model = entry.if_object()) {
            models.push_back(
                {text_member(*model, "id"), text_member(*model, "owned_by"), count_member(*model, "max_model_len")});
        }
    }
    return models;
}

const ListedModel* find_model(const std::vector<ListedModel>& models, std::string_view name) noexcept {
    const auto found = std::find_if(models.begin(), models.end(), [&](const auto& model) { return model.id == name; });
    return found == models.end() ? nullptr : &*found;
}

std::string names_of(const std::vector<ListedModel>& models) {
    const auto quoted = [](const ListedModel& model) { return "'" + model.id + "'"; };
    return models.empty() ? "none" : joined(models, ", ", quoted);
}

boost::asio::awaitable<FetchResult<std::optional<std::vector<ListedModel>>>> ask_for_models(ProbeDialogue& dialogue,
                                                                                            std::string target) {
    using Models = std::optional<std::vector<ListedModel>>;
    const std::string page = dialogue.page(target);
    const auto response = co_await dialogue.send(make_get(std::move(target)), std::nullopt);
    if (!response) {
        co_return response.error();
    }
    if (response->status == 404 || response->status == 405) {
        co_return Models();
    }
    if (!is_success(*response)) {
        co_return failure_of_status(page, *response);
    }
    auto models = parse_model_list(body_text(*response));
    if (!models) {
        co_return FetchError{FailureKind::bad_response, page + " " + models.error().message, std::nullopt};
    }
    co_return Models(std::move(*models));
}

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
        signs.inference_server = text_member(object_in(body_text(*response)), "name");
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

boost::asio::awaitable<FetchResult<TokenizerSigns>> ask_to_tokenize(ProbeDialogue& dialogue, std::string target,
                                                                    std::string model) {
    HttpRequest request;
    request.target = std::move(target);
    request.content_type = kJsonContentType;
    request.body = std::make_shared<const std::string>(
        to_text(json::object{{"model", model}, {"prompt", kTokenizerText}, {"add_special_tokens", false}}));
    const auto response = co_await dialogue.send(std::move(request), std::nullopt);
    TokenizerSigns signs;
    if (!response && is_outage(response.error().kind)) {
        co_return response.error();
    }
    if (response && is_success(*response)) {
        signs.ids = ids_in(object_in(body_text(*response)));
    }
    co_return signs;
}

}  // namespace distilld

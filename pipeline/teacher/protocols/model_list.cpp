#include "pipeline/teacher/protocols/model_list.hpp"

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <utility>

#include "pipeline/teacher/transport/http_failure.hpp"

namespace distilld {
namespace {

std::string text_member(const boost::json::object& object, std::string_view name) {
    const auto* value = object.if_contains(name);
    const auto* text = value != nullptr ? value->if_string() : nullptr;
    return text != nullptr ? std::string(*text) : std::string();
}

std::uint64_t count_member(const boost::json::object& object, std::string_view name) {
    const auto* value = object.if_contains(name);
    const auto* count = value != nullptr ? value->if_int64() : nullptr;
    return count != nullptr && *count > 0 ? static_cast<std::uint64_t>(*count) : 0;
}

}  // namespace

Result<std::vector<ListedModel>> parse_model_list(std::string_view body) {
    boost::system::error_code failed;
    const auto value = boost::json::parse(body, failed);
    const auto* object = failed ? nullptr : value.if_object();
    const auto* data = object != nullptr ? object->if_contains("data") : nullptr;
    const auto* list = data != nullptr ? data->if_array() : nullptr;
    if (list == nullptr) {
        return teacher_error("is no list of models ({\"data\": […]})");
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
    std::string names;
    for (const auto& model : models) {
        names += (names.empty() ? "'" : ", '") + model.id + "'";
    }
    return names.empty() ? "none" : names;
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

}  // namespace distilld

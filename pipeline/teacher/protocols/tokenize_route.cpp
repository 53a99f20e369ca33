#include "pipeline/teacher/protocols/tokenize_route.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/json_members.hpp"
#include "base/json_text.hpp"
#include "pipeline/teacher/transport/http_failure.hpp"

namespace distilld {
namespace {

namespace json = boost::json;

std::vector<std::int32_t> ids_in(std::string_view body) {
    boost::system::error_code failed;
    const json::value answer = json::parse(body, failed);
    const json::object* object = failed ? nullptr : answer.if_object();
    const json::value* tokens = object != nullptr ? object->if_contains("tokens") : nullptr;
    const json::array* listed = tokens != nullptr ? tokens->if_array() : nullptr;
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
        signs.ids = ids_in(body_text(*response));
    }
    co_return signs;
}

}  // namespace distilld

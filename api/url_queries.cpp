#include "api/url_queries.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <string_view>

namespace distilld::api {

void hide_url_queries(boost::json::value& value) {
    if (auto* object = value.if_object()) {
        for (auto& member : *object) {
            hide_url_queries(member.value());
        }
    } else if (auto* array = value.if_array()) {
        for (auto& entry : *array) {
            hide_url_queries(entry);
        }
    } else if (auto* text = value.if_string()) {
        const std::string_view all(*text);
        const auto query = all.find('?');
        if (query != std::string_view::npos && all.substr(0, query).find("://") != std::string_view::npos) {
            text->erase(query + 1);
            text->append("…");
        }
    }
}

}  // namespace distilld::api

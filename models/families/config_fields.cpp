#include "models/families/config_fields.hpp"

#include <boost/json.hpp>
#include <string>
#include <utility>

namespace distilld::models {

namespace json = boost::json;

namespace {

constexpr std::int64_t kMaxTokenId = std::int64_t{1} << 24;
constexpr std::size_t kMaxDepth = 64;

/// Appends the id, or nothing for −1, which some published configurations use for "none". False if it is not an id.
bool append_id(const json::value& value, std::vector<std::int64_t>& target) {
    const auto id = JsonMembers::whole_number<std::int64_t>(value);
    if (!id || *id < -1 || *id > kMaxTokenId) {
        return false;
    }
    if (*id >= 0) {
        target.push_back(*id);
    }
    return true;
}

}  // namespace

Result<json::object> parse_config_object(std::string_view text, const JsonPlace& place) {
    if (text.empty()) {
        return json::object();
    }
    auto value = parse_json_text(text, kMaxDepth);
    if (!value) {
        return invalid_input(place.message("is not JSON (" + value.error().reason + ")"));
    }
    if (!value->is_object()) {
        return invalid_input(place.message("is not a JSON object"));
    }
    return std::move(value->get_object());
}

void require_text(JsonMembers& config, std::string_view name, std::string_view expected) {
    const json::value* value = config.find(name);
    if (value != nullptr && (!value->is_string() || std::string_view(value->get_string()) != expected)) {
        config.fail(name, "is " + JsonMembers::brief(*value) + "; only \"" + std::string(expected) + "\" is supported");
    }
}

void read_id(JsonMembers& config, std::string_view name, std::optional<std::int64_t>& target) {
    const json::value* value = config.members().if_contains(name);
    if (value == nullptr) {
        return;
    }
    std::vector<std::int64_t> ids;
    if (!value->is_null() && !append_id(*value, ids)) {
        config.fail(name, "is " + JsonMembers::brief(*value) + ", a token id is expected");
        return;
    }
    target = ids.empty() ? std::nullopt : std::optional(ids.front());
}

void read_ids(JsonMembers& config, std::string_view name, std::vector<std::int64_t>& target) {
    const json::value* value = config.members().if_contains(name);
    if (value == nullptr) {
        return;
    }
    target.clear();
    if (value->is_null()) {
        return;
    }
    const json::array single{*value};
    for (const json::value& item : value->is_array() ? value->get_array() : single) {
        if (!append_id(item, target)) {
            config.fail(name, "is " + JsonMembers::brief(*value) + ", token ids are expected");
            return;
        }
    }
}

}  // namespace distilld::models

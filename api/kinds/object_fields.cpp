#include "api/kinds/object_fields.hpp"

#include <algorithm>

#include "api/kinds/text_checks.hpp"
#include "base/json_text.hpp"

namespace distilld::api {

std::optional<boost::json::object> read_object(std::string_view text, const char* what, std::size_t max_bytes,
                                               std::size_t max_depth, std::vector<Violation>& violations) {
    if (text.size() > max_bytes) {
        violations.push_back(
            {"", "too_large", std::string(what) + " is longer than " + std::to_string(max_bytes) + " bytes"});
        return std::nullopt;
    }
    auto document = parse_json_text(text, max_depth);
    if (!document) {
        violations.push_back({"", "malformed_json", "not JSON: " + document.error().reason});
        return std::nullopt;
    }
    if (!document->is_object()) {
        FieldReport{"", violations}.wrong_type("an object", *document);
        return std::nullopt;
    }
    for (auto& pointer : duplicate_keys(text, max_depth)) {
        violations.push_back({std::move(pointer), "duplicate_key", "appears more than once in its object"});
    }
    return std::move(document->get_object());
}

void refuse_unknown(const boost::json::object& object, const std::string& pointer,
                    const std::vector<std::string>& known, std::vector<Violation>& violations,
                    const std::function<std::string(const std::string& name)>& meant) {
    // A hint costs a comparison with every known name, and only kMaxListed violations are shown.
    std::size_t hints_left = kMaxListed;
    for (const auto& member : object) {
        const std::string name(member.key());
        if (std::ranges::find(known, name) != known.end()) {
            continue;
        }
        std::string hint;
        if (hints_left > 0) {
            --hints_left;
            hint = meant ? meant(name) : std::string();
            if (const auto near = closest(name, known); near && hint.empty()) {
                hint = "\"" + *near + "\"";
            }
        }
        violations.push_back({pointer + "/" + escape_pointer_token(name), "unknown_field",
                              "unknown field " + quote(name) + (hint.empty() ? "" : "; did you mean " + hint + "?")});
    }
}

}  // namespace distilld::api

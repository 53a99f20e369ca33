#include "api/spec_overrides.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <optional>
#include <utility>

#include "api/job_spec_json.hpp"
#include "api/kinds/text_checks.hpp"
#include "api/spec_docs.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

std::optional<std::size_t> index_of(const std::string& token) {
    if (token.empty() || token.size() > 9 || !std::all_of(token.begin(), token.end(), is_digit)) {
        return std::nullopt;
    }
    if (token.size() > 1 && token.front() == '0') {
        return std::nullopt;
    }
    return std::stoul(token);
}

Error override_error(const std::string& pointer, const std::string& what) {
    return invalid_input("--set " + pointer + ": " + what);
}

/// Steps from `parent` to the child that `token` names; creates missing objects.
Result<json::value*> step_into(json::value& parent, const std::string& token, const std::string& pointer) {
    if (auto* object = parent.if_object()) {
        auto& child = (*object)[token];
        if (child.is_null()) {
            child.emplace_object();
        }
        return &child;
    }
    if (auto* array = parent.if_array()) {
        const auto index = index_of(token);
        if (!index || *index >= array->size()) {
            return override_error(pointer, "'" + token + "' is not an index of the array");
        }
        return &(*array)[*index];
    }
    return override_error(pointer, "the parent of '" + token + "' is " + kind_name(parent) + ", not an object");
}

Result<void> assign(json::value& parent, const std::string& token, json::value value, const std::string& pointer) {
    if (auto* object = parent.if_object()) {
        if (value.is_null()) {
            object->erase(token);
        } else {
            (*object)[token] = std::move(value);
        }
        return {};
    }
    if (auto* array = parent.if_array()) {
        const auto index = token == "-" ? std::optional(array->size()) : index_of(token);
        if (!index || *index > array->size()) {
            return override_error(pointer, "'" + token + "' is not an index of the array");
        }
        if (*index == array->size()) {
            array->push_back(std::move(value));
        } else {
            (*array)[*index] = std::move(value);
        }
        return {};
    }
    return override_error(pointer, "the parent of '" + token + "' is " + kind_name(parent) + ", not an object");
}

Result<void> apply_one(json::value& document, const Override& change) {
    const auto tokens = split_pointer(change.first);
    if (!tokens) {
        return override_error(change.first, tokens.error().message);
    }
    if (tokens->empty()) {
        return override_error(change.first, "the pointer names the whole document, not a field");
    }
    auto* parent = &document;
    for (std::size_t i = 0; i + 1 < tokens->size(); ++i) {
        auto child = step_into(*parent, (*tokens)[i], change.first);
        if (!child) {
            return child.error();
        }
        parent = *child;
    }
    return assign(*parent, tokens->back(), value_of_override(change.second), change.first);
}

}  // namespace

boost::json::value value_of_override(const std::string& text) {
    if (auto parsed = parse_json_text(text, kSpecDepthLimit)) {
        return *std::move(parsed);
    }
    return json::string(text);
}

Result<std::string> apply_overrides(std::string_view json_text, const std::vector<Override>& overrides) {
    if (json_text.size() > kSpecSizeLimit) {
        return invalid_input("the spec is longer than " + std::to_string(kSpecSizeLimit) + " bytes");
    }
    auto document = parse_json_text(json_text, kSpecDepthLimit);
    if (!document) {
        return invalid_input("the spec is not JSON: " + document.error().reason);
    }
    // Parsing has already dropped one of two equal keys: applying changes to the other would hide the mistake.
    if (const auto twice = duplicate_keys(json_text, kSpecDepthLimit); !twice.empty()) {
        return invalid_input(twice.front() + ": appears more than once in its object");
    }
    for (const auto& change : overrides) {
        if (auto done = apply_one(*document, change); !done) {
            return done.error();
        }
    }
    return to_text(*document);
}

Result<Override> parse_override(std::string_view text) {
    const auto equals = text.find('=');
    const auto name = text.substr(0, equals);
    if (equals == std::string_view::npos || name.find_first_not_of("./") == std::string_view::npos ||
        name.find(' ') != std::string_view::npos) {
        return invalid_input("--set " + std::string(text) +
                             ": FIELD=VALUE is expected, as training.max_steps=4 or /training/max_steps=4");
    }
    return Override{pointer_of(name), std::string(text.substr(equals + 1))};
}

}  // namespace distilld::api

#include "pipeline/data/tokenizer/component.hpp"

#include <boost/json/array.hpp>

#include "base/files/files.hpp"
#include "base/json_members.hpp"
#include "base/json_text.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

const json::value* member_of_value(const json::value& component, std::string_view name) {
    const json::object* object = component.if_object();
    return object != nullptr ? member_of(*object, name) : nullptr;
}

Error wrong_kind(const json::value& component, std::string_view name, std::string_view wanted) {
    return invalid_input("\"" + std::string(name) + "\" of " + JsonMembers::brief(component) + " must be " +
                         std::string(wanted));
}

}  // namespace

Result<json::value> read_json_file(const std::filesystem::path& file) {
    constexpr std::uint64_t kMaxBytes = 256U << 20;
    constexpr std::size_t kMaxDepth = 32;
    const Result<std::string> text = read_text_file(file, kMaxBytes);
    if (!text) {
        return text.error();
    }
    auto content = parse_json_text(*text, kMaxDepth);
    if (!content) {
        return invalid_input(file.string() + ": is not valid JSON: " + content.error().reason);
    }
    return std::move(*content);
}

const json::value* member_of(const json::object& object, std::string_view name) {
    const json::value* found = object.if_contains(name);
    return found != nullptr && !found->is_null() ? found : nullptr;
}

std::string_view type_of(const json::value& component) {
    const json::value* type = member_of_value(component, "type");
    return type != nullptr && type->is_string() ? std::string_view(type->get_string()) : std::string_view();
}

Error not_understood(std::string_view component, const json::value& value) {
    return invalid_input(std::string(component) + " " + JsonMembers::brief(value) + " is not understood");
}

Result<bool> flag_of(const json::value& component, std::string_view name, bool when_absent) {
    const json::value* found = member_of_value(component, name);
    if (found == nullptr) {
        return when_absent;
    }
    if (!found->is_bool()) {
        return wrong_kind(component, name, "true or false");
    }
    return found->get_bool();
}

Result<std::string> text_of(const json::value& component, std::string_view name) {
    const json::value* found = member_of_value(component, name);
    if (found == nullptr || !found->is_string()) {
        return wrong_kind(component, name, "a string");
    }
    return std::string(found->get_string());
}

Result<std::int64_t> number_of(const json::value& component, std::string_view name, std::int64_t when_absent) {
    const json::value* found = member_of_value(component, name);
    if (found == nullptr) {
        return when_absent;
    }
    if (!found->is_int64()) {
        return wrong_kind(component, name, "an integer");
    }
    return found->get_int64();
}

Result<std::shared_ptr<const Pattern>> pattern_of(const json::value& component) {
    const json::value* pattern = member_of_value(component, "pattern");
    const json::object* object = pattern != nullptr ? pattern->if_object() : nullptr;
    if (object == nullptr || object->size() != 1 || !object->begin()->value().is_string()) {
        return wrong_kind(component, "pattern", "{\"Regex\": \"…\"} or {\"String\": \"…\"}");
    }
    const std::string_view kind = object->begin()->key();
    const std::string_view text = object->begin()->value().get_string();
    if (kind == "Regex") {
        return make_regex(text);
    }
    if (kind != "String" || text.empty()) {
        return not_understood("pattern", *pattern);
    }
    return make_literal(std::string(text));
}

Result<Replacement> replacement_of(const json::value& component) {
    Result<std::shared_ptr<const Pattern>> pattern = pattern_of(component);
    if (!pattern) {
        return pattern.error();
    }
    Result<std::string> content = text_of(component, "content");
    if (!content) {
        return content.error();
    }
    return Replacement{std::move(*pattern), std::move(*content)};
}

Result<std::string> space_of(std::string_view kind, const json::value& component) {
    if (member_of_value(component, "replacement") == nullptr) {
        return std::string("\xE2\x96\x81");  // U+2581
    }
    Result<std::string> given = text_of(component, "replacement");
    if (given && given->empty()) {
        return not_understood(kind, component);
    }
    return given;
}

}  // namespace distilld

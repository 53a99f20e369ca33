#include "api/object_reader.hpp"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <utility>

#include "api/text_checks.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

std::string number_text(double value) {
    json::value boxed = value;
    if (value == std::floor(value) && std::abs(value) < 1e15) {
        boxed = static_cast<std::int64_t>(value);
    }
    return json::serialize(boxed);
}

/// A whole number: JSON integers, and 8.0 or 1e3, which some programs write for them.
std::optional<std::uint64_t> as_unsigned(const json::value& value) {
    if (value.is_uint64()) {
        return value.get_uint64();
    }
    if (value.is_int64() && value.get_int64() >= 0) {
        return static_cast<std::uint64_t>(value.get_int64());
    }
    if (value.is_double()) {
        const double number = value.get_double();
        if (number >= 0 && number <= 9007199254740992.0 && number == std::floor(number)) {
            return static_cast<std::uint64_t>(number);
        }
    }
    return std::nullopt;
}

std::optional<std::string> place_of(std::string_view key, std::span<const FieldPlace> places) {
    for (const auto& [section, field] : places) {
        if (key == field) {
            return (*section == '\0' ? "" : "/" + std::string(section)) + "/" + field;
        }
    }
    return std::nullopt;
}

}  // namespace

ObjectReader::ObjectReader(const json::object& object, std::string pointer, std::vector<Violation>& out)
    : object_(object), pointer_(std::move(pointer)), out_(out) {}

std::string ObjectReader::at(std::string_view name) const {
    return pointer_ + "/" + escape_pointer_token(name);
}

void ObjectReader::violate(std::string_view name, std::string code, std::string detail) {
    out_.push_back(Violation{at(name), std::move(code), std::move(detail)});
}

void ObjectReader::wrong_type(std::string_view name, std::string_view wanted, const json::value& got) {
    violate(name, "wrong_type", std::string(wanted) + " is expected, not " + kind_name(got));
}

void ObjectReader::required(const char* name, std::string_view what) {
    violate(name, "required", std::string(name) + " is required: " + std::string(what));
}

const json::value* ObjectReader::find(const char* name) {
    known_.emplace_back(name);
    return object_.if_contains(name);
}

const json::object* ObjectReader::object(const char* name) {
    const auto* value = find(name);
    if (value == nullptr) {
        return nullptr;
    }
    if (!value->is_object()) {
        wrong_type(name, "an object", *value);
        return nullptr;
    }
    return &value->get_object();
}

const json::object* ObjectReader::required_object(const char* name, std::string_view what) {
    if (find(name) != nullptr) {
        return object(name);
    }
    required(name, what);
    return nullptr;
}

bool ObjectReader::boolean(const char* name, bool& target) {
    const auto* value = find(name);
    if (value == nullptr) {
        return false;
    }
    if (!value->is_bool()) {
        wrong_type(name, "a boolean", *value);
        return false;
    }
    target = value->get_bool();
    return true;
}

bool ObjectReader::number(const char* name, double& target, double least, double most, Ends ends) {
    const auto* value = find(name);
    if (value == nullptr) {
        return false;
    }
    if (!value->is_number()) {
        wrong_type(name, "a number", *value);
        return false;
    }
    const double number = value->to_number<double>();
    const bool low_ok = ends == Ends::open_low ? number > least : number >= least;
    const bool high_ok = ends == Ends::open_high ? number < most : number <= most;
    if (!std::isfinite(number) || !low_ok || !high_ok) {
        const auto low = (ends == Ends::open_low ? "above " : "at least ") + number_text(least);
        const auto high = (ends == Ends::open_high ? "below " : "at most ") + number_text(most);
        violate(name, "out_of_range", number_text(number) + " is out of range: it must be " + low + " and " + high);
        return false;
    }
    target = number;
    return true;
}

bool ObjectReader::text(const char* name, std::string& target, std::size_t longest, bool may_be_empty) {
    const auto* value = find(name);
    if (value == nullptr) {
        return false;
    }
    if (!value->is_string()) {
        wrong_type(name, "a string", *value);
        return false;
    }
    const std::string_view text = value->get_string();
    if (text.empty() && !may_be_empty) {
        violate(name, "invalid_value", "must not be empty");
        return false;
    }
    if (text.size() > longest) {
        violate(name, "out_of_range", "is longer than " + std::to_string(longest) + " bytes");
        return false;
    }
    if (has_control_character(text)) {
        violate(name, "invalid_value", "must not contain control characters");
        return false;
    }
    target = text;
    return true;
}

void ObjectReader::finish(std::span<const FieldPlace> places) {
    for (const auto& member : object_) {
        const std::string_view key = member.key();
        if (std::find(known_.begin(), known_.end(), key) != known_.end()) {
            continue;
        }
        auto detail = "unknown field " + quote(key);
        if (const auto near = closest(key, known_)) {
            detail += "; did you mean \"" + *near + "\"?";
        } else if (const auto elsewhere = place_of(key, places)) {
            detail += "; did you mean " + *elsewhere + "?";
        }
        violate(key, "unknown_field", std::move(detail));
    }
}

std::optional<std::uint64_t> ObjectReader::whole_number(const char* name, const json::value& value,
                                                        std::string_view wanted, std::uint64_t least,
                                                        std::uint64_t most) {
    if (!value.is_number()) {
        wrong_type(name, wanted, value);
        return std::nullopt;
    }
    const auto number = as_unsigned(value);
    if (!number && value.is_double() && value.get_double() != std::floor(value.get_double())) {
        violate(name, "wrong_type", std::string(wanted) + " is expected, not " + json::serialize(value));
        return std::nullopt;
    }
    if (!number || *number < least || *number > most) {
        violate(name, "out_of_range",
                json::serialize(value) + " is outside " + std::to_string(least) + " to " + std::to_string(most));
        return std::nullopt;
    }
    return number;
}

bool ObjectReader::auto_text(const char* name, const json::value& value, bool& automatic) {
    const std::string_view text = value.get_string();
    if (text == "auto") {
        automatic = true;
        return true;
    }
    violate(name, "invalid_value", quote(text) + " is neither \"auto\" nor a whole number");
    return false;
}

std::optional<std::size_t> ObjectReader::index_of(const char* name, const std::vector<std::string>& candidates) {
    const auto* value = find(name);
    if (value == nullptr) {
        return std::nullopt;
    }
    if (!value->is_string()) {
        wrong_type(name, "a string", *value);
        return std::nullopt;
    }
    const std::string_view text = value->get_string();
    const auto found = std::find(candidates.begin(), candidates.end(), text);
    if (found != candidates.end()) {
        return static_cast<std::size_t>(found - candidates.begin());
    }
    std::string all;
    for (const auto& candidate : candidates) {
        all += (all.empty() ? "\"" : ", \"") + candidate + "\"";
    }
    auto detail = quote(text) + " is not one of " + all;
    if (const auto near = closest(text, candidates)) {
        detail += "; did you mean \"" + *near + "\"?";
    }
    violate(name, "invalid_value", std::move(detail));
    return std::nullopt;
}

}  // namespace distilld::api

#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "base/json_text.hpp"

namespace distilld {

/// A place in JSON, for messages: "config.json: /rope_scaling/factor: …". The source may be empty.
struct JsonPlace {
    std::string source;   ///< a file, or a description of the text; may be empty
    std::string pointer;  ///< of the object, without a trailing '/'

    [[nodiscard]] JsonPlace at(std::string_view member) const {
        return {source, pointer + "/" + escape_pointer_token(member)};
    }
    [[nodiscard]] std::string message(std::string_view what) const {
        std::string text = source.empty() ? std::string() : source + ": ";
        if (!pointer.empty()) {
            text += pointer + ": ";
        }
        return text.append(what);
    }
};

/// Reads members of one JSON object into variables. An absent or null member leaves its variable unchanged, unless it
/// is required. Keeps the first error (invalid_input) and then stops reading.
class JsonMembers {
  public:
    /// `object` must outlive the reader.
    explicit JsonMembers(const boost::json::object& object, JsonPlace place = {})
        : object_(object), place_(std::move(place)) {}

    /// nullptr if absent or null.
    [[nodiscard]] const boost::json::value* find(std::string_view name) const {
        const auto* value = object_.if_contains(name);
        return value == nullptr || value->is_null() ? nullptr : value;
    }

    /// Fails if the member is absent or null.
    JsonMembers& require(std::string_view name) {
        if (find(name) == nullptr) {
            fail(name, "is missing");
        }
        return *this;
    }

    void text(std::string_view name, std::string& target) {
        if (const auto* value = next(name)) {
            if (const auto* string = value->if_string()) {
                target.assign(string->data(), string->size());
            } else {
                fail_type(name, "a string", *value);
            }
        }
    }

    void boolean(std::string_view name, bool& target) {
        if (const auto* value = next(name)) {
            if (const bool* flag = value->if_bool()) {
                target = *flag;
            } else {
                fail_type(name, "true or false", *value);
            }
        }
    }

    /// A whole number from `min` to `max`; 3.0 counts too.
    template <class Integer>
    void integer(std::string_view name, Integer& target, Integer min = std::numeric_limits<Integer>::min(),
                 Integer max = std::numeric_limits<Integer>::max()) {
        const auto* value = next(name);
        if (value == nullptr) {
            return;
        }
        const auto number = whole_number<Integer>(*value);
        if (!number || *number < min || *number > max) {
            fail(name, "is " + brief(*value) + ", a whole number from " + std::to_string(min) + " to " +
                           std::to_string(max) + " is expected");
            return;
        }
        target = *number;
    }

    /// A finite number.
    void real(std::string_view name, double& target) {
        const auto* value = next(name);
        if (value == nullptr) {
            return;
        }
        if (!value->is_number()) {
            fail_type(name, "a number", *value);
            return;
        }
        target = value->to_number<double>();
    }

    /// A finite number of at least `min`, or above it.
    void real_from(std::string_view name, double& target, double min, bool min_allowed) {
        double number = target;
        real(name, number);
        if (failed() || find(name) == nullptr) {
            return;
        }
        if (!std::isfinite(number) || number < min || (number == min && !min_allowed)) {
            fail(name, "is " + brief(*find(name)) + ", a number " + (min_allowed ? "of at least " : "above ") +
                           number_text(min) + " is expected");
            return;
        }
        target = number;
    }

    /// The object under `name`; nullptr if it is absent, null or (an error) something else.
    const boost::json::object* object(std::string_view name) {
        const auto* value = next(name);
        if (value == nullptr) {
            return nullptr;
        }
        if (!value->is_object()) {
            fail_type(name, "an object", *value);
            return nullptr;
        }
        return &value->get_object();
    }

    /// The array under `name`; nullptr as for object().
    const boost::json::array* array(std::string_view name) {
        const auto* value = next(name);
        if (value == nullptr) {
            return nullptr;
        }
        if (!value->is_array()) {
            fail_type(name, "an array", *value);
            return nullptr;
        }
        return &value->get_array();
    }

    /// Records an error of a member: "source: /pointer/name: what".
    void fail(std::string_view name, std::string_view what) { fail(place_.at(name), what); }
    void fail(const JsonPlace& place, std::string_view what) {
        if (!error_) {
            error_ = invalid_input(place.message(what));
        }
    }
    void fail(const Error& error) {
        if (!error_) {
            error_ = error;
        }
    }

    [[nodiscard]] bool failed() const noexcept { return error_.has_value(); }
    [[nodiscard]] const Error& error() const { return error_.value(); }
    [[nodiscard]] Result<void> result() const { return error_ ? Result<void>(*error_) : Result<void>(); }
    [[nodiscard]] const JsonPlace& place() const noexcept { return place_; }
    [[nodiscard]] const boost::json::object& members() const noexcept { return object_; }

    /// The number, if it is whole and fits into Integer.
    template <class Integer>
    [[nodiscard]] static std::optional<Integer> whole_number(const boost::json::value& value) {
        boost::system::error_code inexact;
        const auto number = value.to_number<Integer>(inexact);
        return inexact ? std::optional<Integer>() : std::optional<Integer>(number);
    }

    /// The value's text, shortened, for messages.
    [[nodiscard]] static std::string brief(const boost::json::value& value);

  private:
    [[nodiscard]] const boost::json::value* next(std::string_view name) const {
        return failed() ? nullptr : find(name);
    }
    void fail_type(std::string_view name, std::string_view expected, const boost::json::value& value) {
        fail(name, "is " + brief(value) + ", " + std::string(expected) + " is expected");
    }

    const boost::json::object& object_;
    JsonPlace place_;
    std::optional<Error> error_;
};

}  // namespace distilld

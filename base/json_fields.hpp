#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <concepts>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/describes.hpp"
#include "base/enum_names.hpp"
#include "base/error.hpp"
#include "base/join.hpp"
#include "base/json_members.hpp"

/// JSON of structs that name their fields once (base/describes.hpp):
///
///     BOOST_DESCRIBE_STRUCT(Point, (), (x, y))
///
/// or describe() in the namespace of the struct (found by argument-dependent lookup): called with a const struct for
/// writing, with a mutable one for reading. Fields may be texts, enumerations with names, whole numbers, booleans,
/// doubles (NaN and infinity become null in JSON, and null reads as NaN), optionals, vectors and maps from text of
/// these, raw JSON objects, and described structs.
namespace distilld {

namespace json_fields {

struct NoVisitor {
    template <class Field>
    void operator()(const char* name, Field& field);
};

template <class T>
concept Described = requires(NoVisitor visitor, T& value) { describe(visitor, value); };

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsVector = false;
template <class T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <class T>
inline constexpr bool kIsMap = false;
template <class T>
inline constexpr bool kIsMap<std::map<std::string, T>> = true;

template <class T>
boost::json::value write(const T& field);

struct Writer {
    boost::json::object& object;
    template <class T>
    void operator()(const char* name, const T& field) {
        object[name] = write(field);
    }
};

template <class T>
boost::json::value write(const T& field) {
    if constexpr (Described<const T>) {
        boost::json::object object;
        Writer writer{object};
        describe(writer, field);
        return object;
    } else if constexpr (kIsOptional<T>) {
        return field ? write(*field) : boost::json::value(nullptr);
    } else if constexpr (kIsVector<T>) {
        boost::json::array array;
        array.reserve(field.size());
        for (const auto& element : field) {
            array.push_back(write(element));
        }
        return array;
    } else if constexpr (kIsMap<T>) {
        boost::json::object object;
        for (const auto& [key, value] : field) {
            object[key] = write(value);
        }
        return object;
    } else if constexpr (NamedEnum<T>) {
        return boost::json::value(to_string(field));
    } else if constexpr (std::is_floating_point_v<T>) {
        return std::isfinite(field) ? boost::json::value(field) : boost::json::value(nullptr);
    } else {
        return boost::json::value(field);
    }
}

template <class T>
Result<void> read(const boost::json::value& value, const JsonPlace& place, T& field);

/// Reads the members in order and stops at the first error.
struct Reader {
    const boost::json::object& object;
    const JsonPlace& place;
    Result<void> result;

    template <class T>
    void operator()(const char* name, T& field) {
        const auto* value = object.if_contains(name);
        if (value != nullptr && result) {
            result = read(*value, place.at(name), field);
        }
    }
};

inline Error wrong_type(const boost::json::value& value, const JsonPlace& place, const char* expected) {
    return invalid_input(place.message("is " + JsonMembers::brief(value) + ", " + expected + " is expected"));
}

template <NamedEnum T>
Result<void> read_enum(const boost::json::value& value, const JsonPlace& place, T& field) {
    const auto* text = value.if_string();
    const auto named = text == nullptr ? std::optional<T>() : enum_from_string<T>({text->data(), text->size()});
    if (!named) {
        return wrong_type(value, place, ("one of " + joined(names_of(enum_names(T{})))).c_str());
    }
    field = *named;
    return {};
}

template <class T>
Result<void> read_object(const boost::json::value& value, const JsonPlace& place, T& field) {
    const auto* object = value.if_object();
    if (object == nullptr) {
        return wrong_type(value, place, "an object");
    }
    Reader reader{*object, place, {}};
    describe(reader, field);
    return reader.result;
}

template <class T>
Result<void> read_vector(const boost::json::value& value, const JsonPlace& place, std::vector<T>& field) {
    const auto* array = value.if_array();
    if (array == nullptr) {
        return wrong_type(value, place, "an array");
    }
    field.clear();
    for (std::size_t i = 0; i < array->size(); ++i) {
        T element{};
        if (auto done = read((*array)[i], place.at(std::to_string(i)), element); !done) {
            return done;
        }
        field.push_back(std::move(element));
    }
    return {};
}

template <class T>
Result<void> read_map(const boost::json::value& value, const JsonPlace& place, std::map<std::string, T>& field) {
    const auto* object = value.if_object();
    if (object == nullptr) {
        return wrong_type(value, place, "an object");
    }
    field.clear();
    for (const auto& member : *object) {
        const std::string key(member.key());
        if (auto done = read(member.value(), place.at(key), field[key]); !done) {
            return done;
        }
    }
    return {};
}

template <class T>
Result<void> read(const boost::json::value& value, const JsonPlace& place, T& field) {
    if constexpr (std::is_floating_point_v<T>) {
        if (value.is_null()) {
            field = std::numeric_limits<T>::quiet_NaN();
        } else if (value.is_number()) {
            field = static_cast<T>(value.to_number<double>());
        } else {
            return wrong_type(value, place, "a number");
        }
    } else if constexpr (kIsOptional<T>) {
        field.reset();
        if (!value.is_null()) {
            return read(value, place, field.emplace());
        }
    } else if constexpr (std::same_as<T, bool>) {
        if (!value.is_bool()) {
            return wrong_type(value, place, "true or false");
        }
        field = value.get_bool();
    } else if constexpr (std::is_integral_v<T>) {
        const auto number = JsonMembers::whole_number<T>(value);
        if (!number) {
            return wrong_type(value, place, "a whole number in range");
        }
        field = *number;
    } else if constexpr (std::same_as<T, std::string>) {
        const auto* text = value.if_string();
        if (text == nullptr) {
            return wrong_type(value, place, "a string");
        }
        field.assign(text->data(), text->size());
    } else if constexpr (NamedEnum<T>) {
        return read_enum(value, place, field);
    } else if constexpr (std::same_as<T, boost::json::object>) {
        if (!value.is_object()) {
            return wrong_type(value, place, "an object");
        }
        field = value.get_object();
    } else if constexpr (kIsVector<T>) {
        return read_vector(value, place, field);
    } else if constexpr (kIsMap<T>) {
        return read_map(value, place, field);
    } else {
        return read_object(value, place, field);
    }
    return {};
}

}  // namespace json_fields

/// The struct as a JSON object, with members in the order of its description.
template <json_fields::Described T>
[[nodiscard]] boost::json::object write_fields(const T& value) {
    boost::json::object object;
    json_fields::Writer writer{object};
    describe(writer, value);
    return object;
}

/// Reads an object into `value`. Missing members keep their values; unknown members are ignored. The error
/// (invalid_input) gives the place of a member with the wrong type.
template <json_fields::Described T>
Result<void> read_fields(const boost::json::object& object, T& value, const JsonPlace& place = {}) {
    json_fields::Reader reader{object, place, {}};
    describe(reader, value);
    return reader.result;
}

}  // namespace distilld

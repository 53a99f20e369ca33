#pragma once

#include <array>
#include <boost/describe/enum.hpp>
#include <boost/describe/enumerators.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace distilld {

/// A row of the table that names an enumeration's values in JSON, on command lines and in messages. Each enumeration
/// has one such table: generated from its enumerators (BOOST_DESCRIBE_ENUM), or written next to it.
template <class Enum>
struct EnumName {
    const char* text;
    Enum value;
};

/// "unknown" for a value without a row.
template <class Names, class Enum>
[[nodiscard]] constexpr const char* name_of(const Names& names, Enum value) noexcept {
    for (const auto& name : names) {
        if (name.value == value) {
            return name.text;
        }
    }
    return "unknown";
}

/// The texts of a table, in its order.
template <class Names>
[[nodiscard]] std::vector<std::string> names_of(const Names& names) {
    std::vector<std::string> texts;
    for (const auto& name : names) {
        texts.emplace_back(name.text);
    }
    return texts;
}

/// nullopt for a text without a row.
template <class Names>
[[nodiscard]] constexpr auto value_of(const Names& names, std::string_view text) noexcept {
    std::optional<std::remove_cvref_t<decltype(names[0].value)>> found;
    for (const auto& name : names) {
        if (text == name.text) {
            found = name.value;
        }
    }
    return found;
}

namespace detail {
template <class Enum>
inline constexpr auto kDescribedNames = []<template <class...> class List, class... Row>(List<Row...>*) {
    return std::array{EnumName<Enum>{Row::name, Row::value}...};
}(static_cast<boost::describe::describe_enumerators<Enum>*>(nullptr));
}  // namespace detail

/// The table of an enumeration that uses its enumerators as names; needs one line after the enumeration:
///
///     BOOST_DESCRIBE_ENUM(Colour, red, blue)
template <class Enum>
    requires boost::describe::has_describe_enumerators<Enum>::value
[[nodiscard]] constexpr const auto& enum_names(Enum) noexcept {
    return detail::kDescribedNames<Enum>;
}

/// An enumeration with a function in its namespace that returns its table (argument-dependent lookup):
///
///     constexpr const auto& enum_names(Colour) { return kColourNames; }
template <class Enum>
concept NamedEnum = std::is_enum_v<Enum> && requires(Enum value) { enum_names(value); };

/// The table of an enumeration.
template <NamedEnum Enum>
inline constexpr const auto& kEnumNames = enum_names(Enum{});

template <NamedEnum Enum>
[[nodiscard]] constexpr const char* to_string(Enum value) noexcept {
    return name_of(enum_names(value), value);
}

template <NamedEnum Enum>
[[nodiscard]] constexpr std::optional<Enum> enum_from_string(std::string_view text) noexcept {
    return value_of(enum_names(Enum{}), text);
}

}  // namespace distilld

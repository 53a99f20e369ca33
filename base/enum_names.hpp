#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace distilld {

/// One row of the table that says how the values of an enumeration are spelt in JSON, on command lines and in messages.
/// Each enumeration has one such table, beside it.
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

/// Nothing for a text that no row has.
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

/// An enumeration whose table is found by a function beside it (argument-dependent lookup):
///
///     constexpr const auto& enum_names(Colour) { return kColourNames; }
template <class Enum>
concept NamedEnum = std::is_enum_v<Enum> && requires(Enum value) { enum_names(value); };

template <NamedEnum Enum>
[[nodiscard]] constexpr const char* to_string(Enum value) noexcept {
    return name_of(enum_names(value), value);
}

template <NamedEnum Enum>
[[nodiscard]] constexpr std::optional<Enum> enum_from_string(std::string_view text) noexcept {
    return value_of(enum_names(Enum{}), text);
}

}  // namespace distilld

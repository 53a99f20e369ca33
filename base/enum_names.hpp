#pragma once

#include <optional>
#include <string_view>
#include <type_traits>

namespace distilld {

/// What a value of an enumeration is called in JSON and on the command line. An enumeration has names by a function
/// beside it (it is found by argument-dependent lookup) that returns the one table of them:
///
///     inline constexpr std::array kColourNames{EnumName<Colour>{"red", Colour::red}, …};
///     constexpr const auto& enum_names(Colour) { return kColourNames; }
template <class Enum>
struct EnumName {
    const char* text;
    Enum value;
};

template <class Enum>
concept NamedEnum = std::is_enum_v<Enum> && requires(Enum value) { enum_names(value); };

/// "unknown" for a value without a name.
template <NamedEnum Enum>
[[nodiscard]] constexpr const char* to_string(Enum value) noexcept {
    for (const auto& name : enum_names(value)) {
        if (name.value == value) {
            return name.text;
        }
    }
    return "unknown";
}

/// Nothing for a text that names no value.
template <NamedEnum Enum>
[[nodiscard]] constexpr std::optional<Enum> enum_from_string(std::string_view text) noexcept {
    for (const auto& name : enum_names(Enum{})) {
        if (text == name.text) {
            return name.value;
        }
    }
    return std::nullopt;
}

}  // namespace distilld

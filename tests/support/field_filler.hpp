#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/enum_names.hpp"
#include "base/json_fields.hpp"

namespace distilld::test {

/// Gives each field of a described struct a value of its own that is not its default.
class FieldFiller {
  public:
    template <class T>
    void operator()(const char* /*name*/, T& field) {
        fill(field);
    }

    template <class T>
    void fill(T& field) {
        ++next_;
        if constexpr (std::is_same_v<T, bool>) {
            field = true;
        } else if constexpr (NamedEnum<T>) {
            field = enum_names(field).back().value;
        } else if constexpr (std::is_floating_point_v<T>) {
            field = static_cast<T>(next_) / 3;
        } else if constexpr (std::is_integral_v<T>) {
            field = static_cast<T>(next_);
        } else if constexpr (std::is_same_v<T, std::string>) {
            field = "text " + std::to_string(next_) + " \"with\"\nwhat needs escapes";
        } else {
            fill_compound(field);
        }
    }

  private:
    template <class T>
    void fill_compound(std::optional<T>& field) {
        fill(field.emplace());
    }
    template <class T>
    void fill_compound(std::vector<T>& field) {
        for (int i = 0; i < 2; ++i) {
            fill(field.emplace_back());
        }
    }
    template <class T>
    void fill_compound(std::map<std::string, T>& field) {
        for (const char* key : {"one", "another"}) {
            fill(field[key]);
        }
    }
    void fill_compound(boost::json::object& field) { field["member " + std::to_string(next_)] = next_; }
    template <json_fields::Described T>
    void fill_compound(T& field) {
        describe(*this, field);
    }

    std::uint32_t next_ = 0;
};

template <class T>
[[nodiscard]] T filled() {
    T value;
    FieldFiller filler;
    describe(filler, value);
    return value;
}

/// Counts the fields that a struct describes.
struct FieldCounter {
    std::size_t count = 0;
    template <class T>
    void operator()(const char* /*name*/, T& /*field*/) {
        ++count;
    }
};

template <class T>
[[nodiscard]] std::size_t described_fields() {
    T value;
    FieldCounter counter;
    describe(counter, value);
    return counter.count;
}

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

/// Stands for a value of any type, in braces.
struct Anything {
    template <class T>
        requires(!kIsOptional<T>)
    operator T() const;
};

template <class T, class... Some>
consteval std::size_t count_members() {
    if constexpr (requires { T{Some{}..., Anything{}}; }) {
        return count_members<T, Some..., Anything>();
    } else {
        return sizeof...(Some);
    }
}

/// Members of an aggregate (whose members are not C arrays or aggregates that braces could be left away of).
template <class T>
[[nodiscard]] consteval std::size_t member_count() {
    return count_members<T>();
}

}  // namespace distilld::test

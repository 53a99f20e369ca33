#pragma once

#include <concepts>
#include <type_traits>

namespace distilld {

/// T is Struct or const Struct: for the free function template that names the fields of a struct, once for those who
/// read it and those who write it (base/json_fields.hpp).
///
///     template <class Visitor, Describes<Point> T>
///     void describe(Visitor& v, T& point) {
///         v("x", point.x);
///         v("y", point.y);
///     }
template <class T, class Struct>
concept Describes = std::same_as<std::remove_const_t<T>, Struct>;

}  // namespace distilld

#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/members.hpp>
#include <concepts>
#include <type_traits>

namespace distilld {

/// T is Struct or const Struct. For the free function template that names the fields of a struct once, for reading and
/// writing (base/json_fields.hpp), if they are not simply its members:
///
///     template <class Visitor, Describes<Point> T>
///     void describe(Visitor& v, T& point) {
///         v("x", point.coordinates[0]);
///         v("y", point.coordinates[1]);
///     }
template <class T, class Struct>
concept Describes = std::same_as<std::remove_const_t<T>, Struct>;

/// The same for fields that are members with the same names; needs one line after the struct:
///
///     BOOST_DESCRIBE_STRUCT(Point, (), (x, y))
template <class Visitor, class T>
    requires boost::describe::has_describe_members<std::remove_const_t<T>>::value
void describe(Visitor& v, T& value) {
    using Members = boost::describe::describe_members<std::remove_const_t<T>, boost::describe::mod_public>;
    [&]<template <class...> class List, class... Member>(List<Member...>*) {
        (v(Member::name, value.*Member::pointer), ...);
    }(static_cast<Members*>(nullptr));
}

}  // namespace distilld

#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <variant>

/// Tables with one row per type: a constexpr std::tuple of structs. Each struct has the member type `type` and the
/// type's properties, the name first.
namespace distilld {

template <class Table>
struct TableTypes;
template <class... Rows>
struct TableTypes<std::tuple<Rows...>> {
    using Variant = std::variant<typename Rows::type...>;
};

/// A value of one of the table's types, in their order.
template <const auto& kTable>
using VariantOf = typename TableTypes<std::remove_cvref_t<decltype(kTable)>>::Variant;

/// The row of T, which must be in the table.
template <class T, class... Rows>
[[nodiscard]] constexpr const auto& row_of(const std::tuple<Rows...>& table) noexcept {
    constexpr std::size_t kIndex = [] {
        const bool same[] = {std::is_same_v<T, typename Rows::type>...};
        std::size_t index = 0;
        while (index < sizeof...(Rows) && !same[index]) {
            ++index;
        }
        return index;
    }();
    static_assert(kIndex < sizeof...(Rows), "the type is not in the table");
    return std::get<kIndex>(table);
}

}  // namespace distilld

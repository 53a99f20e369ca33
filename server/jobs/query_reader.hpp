#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "api/http_message.hpp"
#include "api/value_kinds.hpp"

namespace distilld {

/// The parameters of a request's query, of which all that are wrong are refused at once: who asks mends them in one go.
/// What is read of a wrong one is its default; nothing may be done with it before finish() has returned. For one
/// request, on its thread; the request must outlive it.
class QueryReader {
  public:
    /// Any other parameter than the `known`, and one that stands twice, is wrong: to ignore it in silence hides a
    /// mistake. "name[]" stands for all of the form name[…].
    QueryReader(const api::Request& request, std::initializer_list<std::string_view> known);

    [[nodiscard]] bool has(const char* name) const { return value(name).has_value(); }
    /// The value as it stands.
    [[nodiscard]] std::optional<std::string_view> value(const char* name) const { return request_.query_value(name); }

    /// A whole number from `min` to `max`.
    template <class Integer>
    [[nodiscard]] std::optional<Integer> number(const char* name, std::type_identity_t<Integer> min,
                                                std::type_identity_t<Integer> max) {
        const auto text = value(name);
        return text ? number_of<Integer>(*text, name, min, max) : std::nullopt;
    }
    /// The same of a text that stands elsewhere, in a header.
    template <class Integer>
    [[nodiscard]] std::optional<Integer> number_of(std::string_view text, const char* name,
                                                   std::type_identity_t<Integer> min,
                                                   std::type_identity_t<Integer> max) {
        const auto kind = api::integer_kind({static_cast<std::int64_t>(min), static_cast<std::uint64_t>(max)});
        const auto number = read(text, name, *kind);
        return number ? std::optional(number->to_number<Integer>()) : std::nullopt;
    }
    /// `limit`, from 1 to `max`.
    [[nodiscard]] std::uint32_t limit(std::uint32_t otherwise, std::uint32_t max);
    /// true or false.
    [[nodiscard]] bool flag(const char* name, bool otherwise) { return is(name, "true", {"true", "false"}, otherwise); }
    /// `order`, asc or desc: whether it is desc.
    [[nodiscard]] bool newest_first(bool otherwise) { return is("order", "desc", {"asc", "desc"}, otherwise); }

    /// `detail` names the parameter.
    void wrong(std::string name, std::string detail, std::string code = "invalid_parameter");

    /// Refuses the request with 400 if anything was wrong: with the code and the parameter of the first, and all of
    /// them as `errors`.
    void finish() const;

  private:
    /// The value that a text stands for; what is wrong with it is noted.
    std::optional<boost::json::value> read(std::string_view text, const char* name, const api::ValueKind& kind);
    /// Whether the parameter, one of `names`, is that one.
    bool is(const char* name, const char* one, std::vector<std::string> names, bool otherwise);

    const api::Request& request_;
    std::vector<api::Violation> violations_;
};

/// Refuses any parameter but the `known`, where nothing more is read of the query.
void check_query(const api::Request& request, std::initializer_list<std::string_view> known);

}  // namespace distilld

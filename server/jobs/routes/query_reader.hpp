#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "api/kinds/value_kinds.hpp"
#include "server/http/http_message.hpp"

namespace distilld {

/// The parameters of a request's query. finish() refuses all wrong ones at once, so that the client can fix them
/// together. A wrong parameter reads as its default; use no value before finish() has returned. For one request, on its
/// thread; the request must outlive it.
class QueryReader {
  public:
    /// A parameter that is not `known` or appears twice is wrong: ignoring it would hide a mistake. "name[]" stands for
    /// all of the form name[…].
    QueryReader(const http::Request& request, std::initializer_list<std::string_view> known);

    [[nodiscard]] bool has(const char* name) const { return value(name).has_value(); }
    /// The raw value.
    [[nodiscard]] std::optional<std::string_view> value(const char* name) const { return request_.query_value(name); }

    /// A whole number from `min` to `max`.
    template <class Integer>
    [[nodiscard]] std::optional<Integer> number(const char* name, std::type_identity_t<Integer> min,
                                                std::type_identity_t<Integer> max) {
        const auto text = value(name);
        return text ? number_of<Integer>(*text, name, min, max) : std::nullopt;
    }
    /// The same for a text from elsewhere, such as a header.
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

    /// Refuses the request with 400 if anything was wrong: code and parameter are those of the first error, and
    /// `errors` lists all.
    void finish() const;

  private:
    /// The value of a text; notes what is wrong with it.
    std::optional<boost::json::value> read(std::string_view text, const char* name, const api::ValueKind& kind);
    /// Whether the parameter, which must be one of `names`, is `one`.
    bool is(const char* name, const char* one, std::vector<std::string> names, bool otherwise);

    const http::Request& request_;
    std::vector<api::Violation> violations_;
};

/// Refuses any parameter that is not `known`, for routes that read nothing else from the query.
void check_query(const http::Request& request, std::initializer_list<std::string_view> known);

}  // namespace distilld

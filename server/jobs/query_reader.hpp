#pragma once

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/http_message.hpp"
#include "api/violation.hpp"

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
        Integer number = 0;
        const char* begin = text.data();
        const char* end = begin + text.size();
        const auto [stop, error] = std::from_chars(begin, end, number);
        if (text.empty() || stop != end || error != std::errc() || number < min || number > max) {
            wrong(name, std::string(name) + " must be a whole number from " + std::to_string(min) + " to " +
                            std::to_string(max));
            return std::nullopt;
        }
        return number;
    }
    /// `limit`, from 1 to `max`.
    [[nodiscard]] std::uint32_t limit(std::uint32_t otherwise, std::uint32_t max);
    /// true or false.
    [[nodiscard]] bool flag(const char* name, bool otherwise);
    /// `order`, asc or desc: whether it is desc.
    [[nodiscard]] bool newest_first(bool otherwise);

    /// `detail` names the parameter.
    void wrong(std::string name, std::string detail, std::string code = "invalid_parameter");

    /// Refuses the request with 400 if anything was wrong: with the code and the parameter of the first, and all of
    /// them as `errors`.
    void finish() const;

  private:
    const api::Request& request_;
    std::vector<api::Violation> violations_;
};

/// Refuses any parameter but the `known`, where nothing more is read of the query.
void check_query(const api::Request& request, std::initializer_list<std::string_view> known);

}  // namespace distilld

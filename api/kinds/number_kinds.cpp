#include <algorithm>
#include <boost/json/array.hpp>
#include <charconv>
#include <cmath>
#include <span>
#include <utility>

#include "api/kinds/text_checks.hpp"
#include "api/kinds/value_kinds.hpp"
#include "base/json_members.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

/// A bound in a form for people: 2⁵⁰ and 10¹² instead of their digits.
std::string bound_text(std::uint64_t bound) {
    const auto power = [](int base, int exponent) {
        constexpr const char* kSuperscripts[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
        std::string text = std::to_string(base);
        for (const char digit : std::to_string(exponent)) {
            text += kSuperscripts[digit - '0'];
        }
        return text;
    };
    if (bound == std::numeric_limits<std::uint64_t>::max()) {
        return power(2, 64) + "−1";
    }
    for (int exponent = 30; exponent < 64; ++exponent) {
        if (bound == std::uint64_t{1} << exponent) {
            return power(2, exponent);
        }
    }
    std::uint64_t power_of_ten = 1'000'000;
    for (int exponent = 6; exponent < 20; ++exponent, power_of_ten *= 10) {
        if (bound == power_of_ten) {
            return power(10, exponent);
        }
    }
    return std::to_string(bound);
}

struct Unit {
    std::string_view name;
    std::uint64_t factor;
};

constexpr Unit kNoUnits[] = {{"", 1}};
/// In ascending order.
constexpr Unit kSizeUnits[] = {{"", 1}, {"KiB", 1ULL << 10}, {"MiB", 1ULL << 20}, {"GiB", 1ULL << 30}};
constexpr Unit kTimeUnits[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};

/// Whole numbers, sizes and durations.
struct Quantity {
    std::span<const Unit> units;
    std::uint64_t plain;  ///< factor of a number without a unit
    const char* what;
    const char* more;  ///< other accepted forms
    const char* type_name;
    const char* example = nullptr;  ///< a text with a unit
    const char* pattern = nullptr;  ///< regular expression of such texts
};

constexpr Quantity kInteger{kNoUnits, 1, "a whole number", "", "N"};
constexpr Quantity kSize{kSizeUnits,
                         1,
                         "a size",
                         " (bytes, or a text such as \"8MiB\")",
                         "SIZE",
                         "8MiB",
                         "^[0-9]+([.][0-9]+)?(KiB|MiB|GiB)$"};
constexpr Quantity kDuration{kTimeUnits,
                             1000,
                             "a duration",
                             " (seconds, or a text such as \"500ms\", \"90s\", \"5m\")",
                             "DURATION",
                             "5m",
                             "^[0-9]+([.][0-9]+)?(ms|s|m|h)$"};

/// Converts "1.5MiB" to the smallest unit; nullopt for other texts.
std::optional<double> in_smallest(const Quantity& quantity, std::string_view text) {
    double number = 0;
    const char* begin = text.data();
    const char* end = begin + text.size();
    const auto parsed = std::from_chars(begin, end, number, std::chars_format::fixed);
    const std::string_view name(parsed.ptr, static_cast<std::size_t>(end - parsed.ptr));
    const auto unit = std::ranges::find(quantity.units, name, &Unit::name);
    if (parsed.ec != std::errc() || !is_digit(text.front()) || name.empty() || unit == quantity.units.end()) {
        return std::nullopt;
    }
    return number * static_cast<double>(unit->factor);
}

json::object with_units(const Quantity& quantity, json::object schema) {
    if (quantity.pattern == nullptr) {
        return schema;
    }
    return {{"oneOf", json::array{schema, json::object{{"type", "string"}, {"pattern", quantity.pattern}}}}};
}

std::string with_example(const Quantity& quantity, std::string values) {
    return quantity.example == nullptr ? values : values + ", or a text such as `\"" + quantity.example + "\"`";
}

std::string expected_quantity(const Quantity& quantity, const json::value& value) {
    return std::string(quantity.what) + quantity.more + " is expected, not " +
           (value.is_number() ? to_text(value) : kind_name(value));
}

/// Keeps a uint64, or an int64 if the number is negative.
class IntegerKind final : public ValueKind {
  public:
    IntegerKind(const Quantity& quantity, IntegerRange range, bool or_auto = false)
        : quantity_(quantity), range_(range), or_auto_(or_auto) {}

    std::optional<json::value> read(const json::value& value, const FieldReport& report) const override {
        const auto* text = value.if_string();
        if (or_auto_ && text != nullptr) {
            return *text == "auto"
                       ? std::optional(value)
                       : refuse(report, "invalid_value", quote(*text) + " is neither \"auto\" nor a whole number");
        }
        const auto number = in_smallest_unit(value);
        if (!number || (number->is_double() && number->get_double() != std::floor(number->get_double()))) {
            return refuse(report, "wrong_type", (or_auto_ ? "\"auto\" or " : "") + expected_quantity(quantity_, value));
        }
        // JSON integers, and 8.0 or 1e3, which some programs write for integers.
        if (const auto whole = JsonMembers::whole_number<std::uint64_t>(*number); whole && is_in_range(*whole)) {
            return *whole;
        }
        if (const auto whole = JsonMembers::whole_number<std::int64_t>(*number); whole && is_in_range(*whole)) {
            return *whole;
        }
        return refuse(
            report, "out_of_range",
            to_text(value) + " is outside " + std::to_string(range_.min) + " to " + std::to_string(range_.max));
    }
    json::value write(json::value kept) const override { return quantity_.plain == 1 ? kept : show(kept); }
    json::value show(json::value kept) const override {
        if (!kept.is_uint64()) {
            return kept;
        }
        const auto text = text_of(kept.get_uint64());
        return is_digit(text.back()) ? kept : json::value(json::string(text));
    }
    json::object schema() const override {
        json::object number{{"type", "integer"}, {"minimum", range_.min}, {"maximum", range_.max}};
        return or_auto_ ? json::object{{"oneOf", json::array{number, json::object{{"const", "auto"}}}}}
                        : with_units(quantity_, number);
    }
    std::string values() const override {
        return with_example(quantity_, std::to_string(range_.min) + "–" + bound_text(range_.max)) +
               (or_auto_ ? ", `\"auto\"`" : "");
    }
    std::string plain_values() const override {
        return (range_.min < 0 ? std::to_string(range_.min) : text_of(static_cast<std::uint64_t>(range_.min))) +
               " to " + text_of(range_.max);
    }
    std::string wanted() const override {
        return std::string(quantity_.what) + " from " + plain_values() + quantity_.more;
    }
    std::string type_name() const override { return quantity_.type_name; }

  private:
    [[nodiscard]] bool is_in_range(auto number) const {
        return std::cmp_greater_equal(number, range_.min) && std::cmp_less_equal(number, range_.max);
    }
    [[nodiscard]] std::optional<json::value> in_smallest_unit(const json::value& value) const {
        if (const auto* text = value.if_string()) {
            const auto number = in_smallest(quantity_, *text);
            return number ? std::optional<json::value>(*number) : std::nullopt;
        }
        if (!value.is_number() || quantity_.plain == 1) {
            return value.is_number() ? std::optional(value) : std::nullopt;
        }
        return json::value(value.to_number<double>() * static_cast<double>(quantity_.plain));
    }
    /// Uses the largest unit that needs no fraction.
    [[nodiscard]] std::string text_of(std::uint64_t number) const {
        const Unit* best = &quantity_.units.front();
        for (const auto& unit : quantity_.units) {
            if (number != 0 && number % unit.factor == 0) {
                best = &unit;
            }
        }
        return std::to_string(number / best->factor) + std::string(best->name);
    }

    const Quantity& quantity_;
    IntegerRange range_;
    bool or_auto_;
};

class NumberKind final : public ValueKind {
  public:
    NumberKind(NumberRange range, bool is_seconds) : range_(range), is_seconds_(is_seconds) {}

    std::optional<json::value> read(const json::value& value, const FieldReport& report) const override {
        const auto given = number_of(value);
        if (!given) {
            return refuse(
                report, "wrong_type",
                is_seconds_ ? expected_quantity(kDuration, value) : "a number is expected, not " + kind_name(value));
        }
        const double number = *given;
        const bool min_good = range_.ends == Ends::open_min ? number > range_.min : number >= range_.min;
        const bool max_good = range_.ends == Ends::open_max ? number < range_.max : number <= range_.max;
        if (!std::isfinite(number) || !min_good || !max_good) {
            const auto shown = std::isfinite(number) ? number_text(number) : "a number beyond double precision";
            const auto low = (range_.ends == Ends::open_min ? "above " : "at least ") + number_text(range_.min);
            const auto high = (range_.ends == Ends::open_max ? "below " : "at most ") + number_text(range_.max);
            return refuse(report, "out_of_range", shown + " is out of range: it must be " + low + " and " + high);
        }
        return number;
    }
    json::object schema() const override {
        const json::object number{{"type", "number"},
                                  {range_.ends == Ends::open_min ? "exclusiveMinimum" : "minimum", range_.min},
                                  {range_.ends == Ends::open_max ? "exclusiveMaximum" : "maximum", range_.max}};
        return is_seconds_ ? with_units(kDuration, number) : number;
    }
    std::string values() const override {
        return is_seconds_ ? with_example(kDuration, number_values()) : number_values();
    }

  private:
    [[nodiscard]] std::optional<double> number_of(const json::value& value) const {
        if (value.is_number()) {
            return value.to_number<double>();
        }
        const auto* text = is_seconds_ ? value.if_string() : nullptr;
        const auto milliseconds = text == nullptr ? std::nullopt : in_smallest(kDuration, *text);
        return milliseconds ? std::optional(*milliseconds / 1000) : std::nullopt;
    }
    [[nodiscard]] std::string number_values() const {
        const auto bound = [](double number) {
            return number >= 0 && number == std::floor(number) && number < 1e18
                       ? bound_text(static_cast<std::uint64_t>(number))
                       : number_text(number);
        };
        if (range_.ends == Ends::closed) {
            return bound(range_.min) + "–" + bound(range_.max);
        }
        return (range_.ends == Ends::open_min ? "above " : "at least ") + bound(range_.min) +
               (range_.ends == Ends::open_max ? ", below " : ", at most ") + bound(range_.max);
    }

    NumberRange range_;
    bool is_seconds_;
};

}  // namespace

ValueKindPtr integer_kind(IntegerRange range) {
    return std::make_shared<IntegerKind>(kInteger, range);
}
ValueKindPtr integer_or_auto_kind(IntegerRange range) {
    return std::make_shared<IntegerKind>(kInteger, range, true);
}
ValueKindPtr size_kind(IntegerRange range) {
    return std::make_shared<IntegerKind>(kSize, range);
}
ValueKindPtr duration_kind(std::chrono::milliseconds min, std::chrono::milliseconds max) {
    return std::make_shared<IntegerKind>(kDuration, IntegerRange{min.count(), static_cast<std::uint64_t>(max.count())});
}
ValueKindPtr number_kind(NumberRange range) {
    return std::make_shared<NumberKind>(range, false);
}
ValueKindPtr seconds_kind(NumberRange range) {
    return std::make_shared<NumberKind>(range, true);
}

}  // namespace distilld::api

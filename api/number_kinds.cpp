#include <boost/json/array.hpp>
#include <cmath>
#include <limits>

#include "api/member_kind.hpp"
#include "api/text_checks.hpp"
#include "base/json_members.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

/// A bound as people read it: 2⁵⁰ and 10¹² rather than their digits.
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

std::string range_text(IntegerRange range) {
    return bound_text(range.min) + "–" + bound_text(range.max);
}

json::object integer_schema(IntegerRange range) {
    return {{"type", "integer"}, {"minimum", range.min}, {"maximum", range.max}};
}

/// JSON integers, and 8.0 or 1e3, which some programs write for them.
std::optional<std::uint64_t> read_whole_number(const json::value& value, IntegerRange range, std::string_view wanted,
                                               const FieldReport& report) {
    if (!value.is_number()) {
        report.wrong_type(wanted, value);
        return std::nullopt;
    }
    if (value.is_double() && value.get_double() != std::floor(value.get_double())) {
        report.violate("wrong_type", std::string(wanted) + " is expected, not " + to_text(value));
        return std::nullopt;
    }
    const auto number = JsonMembers::whole_number<std::uint64_t>(value);
    if (!number || *number < range.min || *number > range.max) {
        report.violate("out_of_range", to_text(value) + " is outside " + std::to_string(range.min) + " to " +
                                           std::to_string(range.max));
        return std::nullopt;
    }
    return number;
}

class IntegerKind final : public MemberKind<std::uint64_t> {
  public:
    IntegerKind(Member<std::uint64_t> member, IntegerRange range) : MemberKind(std::move(member)), range_(range) {}

    json::object schema() const override { return integer_schema(range_); }
    std::string values() const override { return range_text(range_); }

  protected:
    std::optional<std::uint64_t> read_value(const json::value& value, const FieldReport& report) const override {
        return read_whole_number(value, range_, "a whole number", report);
    }

  private:
    IntegerRange range_;
};

class IntegerOrAutoKind final : public MemberKind<IntegerOrAuto> {
  public:
    IntegerOrAutoKind(Member<IntegerOrAuto> member, IntegerRange range)
        : MemberKind(std::move(member)), range_(range) {}

    json::object schema() const override {
        return {{"oneOf", json::array{integer_schema(range_), json::object{{"const", "auto"}}}}};
    }
    std::string values() const override { return range_text(range_) + ", " + in_code("auto"); }

  protected:
    std::optional<IntegerOrAuto> read_value(const json::value& value, const FieldReport& report) const override {
        if (value.is_string()) {
            const std::string_view text = value.get_string();
            if (text == "auto") {
                return IntegerOrAuto{true, 0};
            }
            report.violate("invalid_value", quote(text) + " is neither \"auto\" nor a whole number");
            return std::nullopt;
        }
        const auto number = read_whole_number(value, range_, "\"auto\" or a whole number", report);
        return number ? std::optional(IntegerOrAuto{false, *number}) : std::nullopt;
    }

  private:
    IntegerRange range_;
};

class NumberKind final : public MemberKind<double> {
  public:
    NumberKind(Member<double> member, NumberRange range) : MemberKind(std::move(member)), range_(range) {}

    json::object schema() const override {
        if (range_.only) {
            return {{"const", range_.only->value}};
        }
        return {{"type", "number"},
                {range_.ends == Ends::open_min ? "exclusiveMinimum" : "minimum", range_.min},
                {range_.ends == Ends::open_max ? "exclusiveMaximum" : "maximum", range_.max}};
    }
    std::string values() const override {
        if (range_.only) {
            return number_text(range_.only->value);
        }
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

  protected:
    std::optional<double> read_value(const json::value& value, const FieldReport& report) const override {
        if (!value.is_number()) {
            report.wrong_type("a number", value);
            return std::nullopt;
        }
        const double number = value.to_number<double>();
        const bool min_good = range_.ends == Ends::open_min ? number > range_.min : number >= range_.min;
        const bool max_good = range_.ends == Ends::open_max ? number < range_.max : number <= range_.max;
        if (!std::isfinite(number) || !min_good || !max_good) {
            const auto given = std::isfinite(number) ? number_text(number) : "a number beyond double precision";
            const auto low = (range_.ends == Ends::open_min ? "above " : "at least ") + number_text(range_.min);
            const auto high = (range_.ends == Ends::open_max ? "below " : "at most ") + number_text(range_.max);
            report.violate("out_of_range", given + " is out of range: it must be " + low + " and " + high);
            return std::nullopt;
        }
        if (range_.only && number != range_.only->value) {
            report.violate("unsupported",
                           "only " + number_text(range_.only->value) + " (" + range_.only->meaning + ") is supported");
            return std::nullopt;
        }
        return number;
    }

  private:
    NumberRange range_;
};

}  // namespace

FieldKindPtr make_integer(Member<std::uint64_t> member, IntegerRange range) {
    return std::make_shared<IntegerKind>(std::move(member), range);
}
FieldKindPtr make_integer_or_auto(Member<IntegerOrAuto> member, IntegerRange range) {
    return std::make_shared<IntegerOrAutoKind>(std::move(member), range);
}
FieldKindPtr make_number(Member<double> member, NumberRange range) {
    return std::make_shared<NumberKind>(std::move(member), range);
}

}  // namespace distilld::api

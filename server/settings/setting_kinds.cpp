#include "server/settings/setting_kinds.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <charconv>
#include <cmath>
#include <set>
#include <span>
#include <string_view>

#include "api/text_checks.hpp"

namespace distilld {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxBytes = 4096;

/// What every kind is that takes one word.
class OneWordKind : public SettingKind {
  public:
    [[nodiscard]] json::value value_of(const std::vector<std::string>& words) const override {
        return words.empty() ? json::value(nullptr) : json::value(words.back());
    }
};

std::optional<std::string> wrong_text(const json::value& value, const TextSettingRange& range) {
    const auto* text = value.if_string();
    if (text == nullptr) {
        return "must be a text";
    }
    if (text->empty()) {
        return range.may_be_empty ? std::nullopt : std::optional<std::string>("must not be empty");
    }
    if (text->size() > kMaxBytes) {
        return "must not be longer than " + std::to_string(kMaxBytes) + " bytes";
    }
    if (api::has_control_character(*text)) {
        return "must not contain control characters";
    }
    return range.check == nullptr ? std::nullopt : range.check(std::string(*text));
}

class TextKind final : public OneWordKind {
  public:
    TextKind(SettingMember<std::string> member, TextSettingRange range) : member_(std::move(member)), range_(range) {}

    std::optional<std::string> read(const json::value& value, const std::filesystem::path& /*base*/,
                                    ServiceSettings& settings) const override {
        auto wrong = wrong_text(value, range_);
        if (!wrong) {
            member_.set(settings, std::string(value.get_string()));
        }
        return wrong;
    }
    [[nodiscard]] json::value write(const ServiceSettings& settings) const override {
        return json::string(member_.get(settings));
    }
    [[nodiscard]] std::string values() const override { return range_.values; }
    [[nodiscard]] std::string type_name() const override { return range_.type_name; }

  private:
    SettingMember<std::string> member_;
    TextSettingRange range_;
};

class TextsKind final : public SettingKind {
  public:
    TextsKind(SettingMember<std::vector<std::string>> member, TextSettingRange range)
        : member_(std::move(member)), range_(range) {}

    std::optional<std::string> read(const json::value& value, const std::filesystem::path& /*base*/,
                                    ServiceSettings& settings) const override {
        const auto* list = value.if_array();
        if (list == nullptr) {
            return "must be a list of texts";
        }
        if (list->size() > kMaxSettingTexts) {
            return "must not have more than " + std::to_string(kMaxSettingTexts) + " entries";
        }
        std::vector<std::string> texts;
        for (const auto& element : *list) {
            if (const auto wrong = wrong_text(element, range_)) {
                return "entry " + std::to_string(texts.size() + 1) + " " + *wrong;
            }
            texts.emplace_back(element.get_string());
        }
        if (std::set<std::string>(texts.begin(), texts.end()).size() != texts.size()) {
            return "must not have an entry twice";
        }
        member_.set(settings, texts);
        return std::nullopt;
    }
    [[nodiscard]] json::value value_of(const std::vector<std::string>& words) const override {
        json::array list;
        for (const auto& word : words) {
            for (std::size_t begin = 0; begin <= word.size();) {
                const auto end = std::min(word.find(',', begin), word.size());
                if (end > begin) {
                    list.emplace_back(word.substr(begin, end - begin));
                }
                begin = end + 1;
            }
        }
        return list;
    }
    [[nodiscard]] json::value write(const ServiceSettings& settings) const override {
        const auto texts = member_.get(settings);
        return json::array(texts.begin(), texts.end());
    }
    [[nodiscard]] std::string values() const override { return "list of " + std::string(range_.values) + "s"; }
    [[nodiscard]] std::string type_name() const override { return range_.type_name; }
    [[nodiscard]] SettingShape shape() const override { return SettingShape::words; }

  private:
    SettingMember<std::vector<std::string>> member_;
    TextSettingRange range_;
};

class PathKind final : public OneWordKind {
  public:
    PathKind(SettingMember<std::filesystem::path> member, SettingShape shape)
        : member_(std::move(member)), shape_(shape) {}

    std::optional<std::string> read(const json::value& value, const std::filesystem::path& base,
                                    ServiceSettings& settings) const override {
        auto wrong = wrong_text(value, {.may_be_empty = true});
        if (!wrong) {
            const std::filesystem::path path(std::string(value.get_string()));
            member_.set(settings, path.empty() ? path : (base / path).lexically_normal());
        }
        return wrong;
    }
    [[nodiscard]] json::value write(const ServiceSettings& settings) const override {
        return json::string(member_.get(settings).string());
    }
    [[nodiscard]] std::string values() const override { return shape_ == SettingShape::file ? "file" : "folder"; }
    [[nodiscard]] std::string type_name() const override { return shape_ == SettingShape::file ? "FILE" : "DIR"; }
    [[nodiscard]] SettingShape shape() const override { return shape_; }

  private:
    SettingMember<std::filesystem::path> member_;
    SettingShape shape_;
};

class BooleanKind final : public SettingKind {
  public:
    explicit BooleanKind(SettingMember<bool> member) : member_(std::move(member)) {}

    std::optional<std::string> read(const json::value& value, const std::filesystem::path& /*base*/,
                                    ServiceSettings& settings) const override {
        const auto* flag = value.if_bool();
        if (flag == nullptr) {
            return "must be true or false";
        }
        member_.set(settings, *flag);
        return std::nullopt;
    }
    [[nodiscard]] json::value value_of(const std::vector<std::string>& words) const override {
        const auto& word = words.back();
        for (const auto* yes : {"true", "yes", "on", "1"}) {
            if (word == yes) {
                return true;
            }
        }
        for (const auto* no : {"false", "no", "off", "0"}) {
            if (word == no) {
                return false;
            }
        }
        return json::string(word);
    }
    [[nodiscard]] json::value write(const ServiceSettings& settings) const override { return member_.get(settings); }
    [[nodiscard]] std::string values() const override { return "true or false"; }
    [[nodiscard]] std::string type_name() const override { return "{true,false}"; }
    [[nodiscard]] SettingShape shape() const override { return SettingShape::boolean; }

  private:
    SettingMember<bool> member_;
};

struct Unit {
    std::string_view name;
    std::uint64_t factor;
};

constexpr Unit kNoUnits[] = {{"", 1}};
/// The largest last. A number without a unit has the one marked below.
constexpr Unit kSizeUnits[] = {{"", 1}, {"KiB", 1ULL << 10}, {"MiB", 1ULL << 20}, {"GiB", 1ULL << 30}};
constexpr Unit kTimeUnits[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};

/// Whole numbers, sizes and durations.
struct Quantity {
    std::span<const Unit> units;
    std::uint64_t plain;  ///< factor of a number without a unit
    const char* what;     ///< "a whole number"
    const char* more;     ///< how else it may be said
    const char* type_name;
    bool fractions;  ///< of numbers: 0.5 s
};

constexpr Quantity kInteger{kNoUnits, 1, "a whole number", "", "N", false};
constexpr Quantity kSize{kSizeUnits, 1, "a size", " (bytes, or a text such as \"8MiB\")", "SIZE", false};
constexpr Quantity kDuration{kTimeUnits, 1000, "a duration", " (seconds, or a text such as \"500ms\", \"90s\", \"5m\")",
                             "DURATION", true};

class QuantityKind final : public OneWordKind {
  public:
    QuantityKind(SettingMember<std::uint64_t> member, const Quantity& quantity, std::uint64_t min, std::uint64_t max)
        : member_(std::move(member)), quantity_(quantity), min_(min), max_(max) {}

    std::optional<std::string> read(const json::value& value, const std::filesystem::path& /*base*/,
                                    ServiceSettings& settings) const override {
        const auto number = number_of(value);
        if (!number || *number < min_ || *number > max_) {
            return std::string("must be ") + quantity_.what + " from " + text_of(min_) + " to " + text_of(max_) +
                   quantity_.more;
        }
        member_.set(settings, *number);
        return std::nullopt;
    }
    [[nodiscard]] json::value value_of(const std::vector<std::string>& words) const override {
        if (words.empty()) {
            return nullptr;
        }
        // As TOML would have it: a number without a unit, else a text.
        const auto& word = words.back();
        std::uint64_t whole = 0;
        const auto* end = word.data() + word.size();
        if (const auto parsed = std::from_chars(word.data(), end, whole);
            parsed.ec == std::errc() && parsed.ptr == end) {
            return whole;
        }
        return json::string(word);
    }
    [[nodiscard]] json::value write(const ServiceSettings& settings) const override {
        const auto number = member_.get(settings);
        const auto text = text_of(number);
        return text.find_first_not_of("0123456789") == std::string::npos ? json::value(number)
                                                                         : json::value(json::string(text));
    }
    [[nodiscard]] std::string values() const override { return text_of(min_) + " to " + text_of(max_); }
    [[nodiscard]] std::string type_name() const override { return quantity_.type_name; }

  private:
    /// In the smallest unit; nothing for what is no such quantity.
    [[nodiscard]] std::optional<std::uint64_t> number_of(const json::value& value) const {
        if (value.is_uint64() || value.is_int64()) {
            boost::system::error_code negative;
            const auto number = value.to_number<std::uint64_t>(negative);
            return negative ? std::nullopt : scaled(static_cast<double>(number), quantity_.plain, number);
        }
        if (value.is_double() && quantity_.fractions) {
            return scaled(value.get_double(), quantity_.plain, std::nullopt);
        }
        const auto* text = value.if_string();
        return text == nullptr || quantity_.units.size() < 2 ? std::nullopt : number_of_text(*text);
    }
    [[nodiscard]] std::optional<std::uint64_t> number_of_text(std::string_view text) const {
        double number = 0;
        const auto* end = text.data() + text.size();
        const auto parsed = std::from_chars(text.data(), end, number, std::chars_format::fixed);
        if (parsed.ec != std::errc()) {
            return std::nullopt;
        }
        const std::string_view name(parsed.ptr, static_cast<std::size_t>(end - parsed.ptr));
        if (name.empty()) {
            return scaled(number, quantity_.plain, std::nullopt);
        }
        const auto unit = std::ranges::find(quantity_.units, name, &Unit::name);
        return unit == quantity_.units.end() ? std::nullopt : scaled(number, unit->factor, std::nullopt);
    }
    /// `exact`: the number where it is whole, as a double may not hold it.
    [[nodiscard]] static std::optional<std::uint64_t> scaled(double number, std::uint64_t factor,
                                                             std::optional<std::uint64_t> exact) {
        const double product = number * static_cast<double>(factor);
        if (!std::isfinite(product) || product < 0 || product >= 0x1p63 || std::floor(product) != product) {
            return std::nullopt;
        }
        return exact ? *exact * factor : static_cast<std::uint64_t>(product);
    }
    /// In the largest unit that does without a fraction.
    [[nodiscard]] std::string text_of(std::uint64_t number) const {
        const Unit* best = &quantity_.units.front();
        for (const auto& unit : quantity_.units) {
            if (number != 0 && number % unit.factor == 0) {
                best = &unit;
            }
        }
        return std::to_string(number / best->factor) + std::string(best->name);
    }

    SettingMember<std::uint64_t> member_;
    Quantity quantity_;
    std::uint64_t min_;
    std::uint64_t max_;
};

class ChoiceKind final : public OneWordKind {
  public:
    ChoiceKind(SettingMember<std::string> member, std::vector<std::string> names)
        : member_(std::move(member)), names_(std::move(names)) {}

    std::optional<std::string> read(const json::value& value, const std::filesystem::path& /*base*/,
                                    ServiceSettings& settings) const override {
        const auto* text = value.if_string();
        if (text != nullptr && std::ranges::find(names_, std::string_view(*text)) != names_.end()) {
            member_.set(settings, std::string(*text));
            return std::nullopt;
        }
        auto wrong = "must be " + values();
        if (text != nullptr) {
            if (const auto near = api::closest(*text, names_)) {
                wrong += "; did you mean " + *near + "?";
            }
        }
        return wrong;
    }
    [[nodiscard]] json::value write(const ServiceSettings& settings) const override {
        return json::string(member_.get(settings));
    }
    [[nodiscard]] std::string values() const override { return joined(", ", " or "); }
    [[nodiscard]] std::string type_name() const override { return "{" + joined(",", ",") + "}"; }

  private:
    [[nodiscard]] std::string joined(const char* between, const char* before_last) const {
        std::string all;
        for (std::size_t i = 0; i < names_.size(); ++i) {
            all += (i == 0 ? "" : i + 1 == names_.size() ? before_last : between) + names_[i];
        }
        return all;
    }

    SettingMember<std::string> member_;
    std::vector<std::string> names_;
};

}  // namespace

SettingKindPtr make_text_setting(SettingMember<std::string> member, TextSettingRange range) {
    return std::make_shared<TextKind>(std::move(member), range);
}

SettingKindPtr make_texts_setting(SettingMember<std::vector<std::string>> member, TextSettingRange range) {
    return std::make_shared<TextsKind>(std::move(member), range);
}

SettingKindPtr make_path_setting(SettingMember<std::filesystem::path> member, SettingShape shape) {
    return std::make_shared<PathKind>(std::move(member), shape);
}

SettingKindPtr make_boolean_setting(SettingMember<bool> member) {
    return std::make_shared<BooleanKind>(std::move(member));
}

SettingKindPtr make_integer_setting(SettingMember<std::uint64_t> member, std::uint64_t min, std::uint64_t max) {
    return std::make_shared<QuantityKind>(std::move(member), kInteger, min, max);
}

SettingKindPtr make_size_setting(SettingMember<std::uint64_t> member, std::uint64_t min, std::uint64_t max) {
    return std::make_shared<QuantityKind>(std::move(member), kSize, min, max);
}

SettingKindPtr make_duration_setting(SettingMember<std::chrono::milliseconds> member, std::chrono::milliseconds min,
                                     std::chrono::milliseconds max) {
    SettingMember<std::uint64_t> number{[get = member.get](const ServiceSettings& settings) {
                                            return static_cast<std::uint64_t>(get(settings).count());
                                        },
                                        [set = member.set](ServiceSettings& settings, const std::uint64_t& value) {
                                            set(settings, std::chrono::milliseconds(value));
                                        }};
    return std::make_shared<QuantityKind>(std::move(number), kDuration, static_cast<std::uint64_t>(min.count()),
                                          static_cast<std::uint64_t>(max.count()));
}

SettingKindPtr make_choice_setting(SettingMember<std::string> member, std::vector<std::string> names) {
    return std::make_shared<ChoiceKind>(std::move(member), std::move(names));
}

}  // namespace distilld
